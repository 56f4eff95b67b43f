"""State parts: what goes into a checkpoint, each under a name by which it can be loaded alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model_checkpoint.checkpoint.storage.backend_io import KNOWN_PARTS
from model_checkpoint.checkpoint.storage.recompute_plan import PART, plan_of
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.tree import rng_state

_SUFFIX = "_state_dict"


def gather_parts(known: Mapping[str, Any], extra: Mapping[str, Any] | None, *, save_rng: bool) -> dict[str, Any]:
    """Everything that is to be saved, by part; what is None is left out.

    Example:
        >>> sorted(gather_parts({"model": {"w": 1.0}, "optimizer": None}, {"ema": 0.9}, save_rng=False))
        ['ema', 'model']
        >>> gather_parts({"model": None}, None, save_rng=True)
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: there is nothing to save: give model=, or parts={...}. Nothing was done.
    """
    parts = {name: part for name, part in known.items() if part is not None}
    for name, part in (extra or {}).items():
        if (
            not isinstance(name, str)
            or name in (*KNOWN_PARTS, PART)
            or name.endswith(_SUFFIX)
            or not name
            or name.startswith("_")
        ):
            raise OptionInvalid(
                f"parts has the name {name!r}; names are texts other than {', '.join(KNOWN_PARTS)}, do not begin with "
                f"'_' and do not end with {_SUFFIX!r}. Nothing was done."
            )
        parts[name] = part
    if not parts:
        raise OptionInvalid("there is nothing to save: give model=, or parts={...}. Nothing was done.")
    plan = plan_of(parts.get("model"))
    if plan is not None:
        parts[PART] = plan
    if save_rng:
        parts["rng"] = rng_state()
    return parts
