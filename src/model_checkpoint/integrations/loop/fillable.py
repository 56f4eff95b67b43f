"""Fillable: what a resume can fill in place; anything else is refused on the first start, not on the second."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from model_checkpoint.errors import OptionInvalid

_UNFILLABLE = (bool, int, float, complex, str, bytes, tuple, frozenset)


def require_fillable(objects: Mapping[str, Any], *, options: Sequence[str]) -> None:
    """Refuse values that a load could only replace; ``options`` are the names one may have meant.

    Example:
        >>> require_fillable({"evry": 3}, options=["every"])
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: evry=: a int cannot be filled ... Did you mean every=?
    """
    jax = sys.modules.get("jax")
    fixed = _UNFILLABLE if jax is None else (*_UNFILLABLE, jax.Array)
    for name, one in objects.items():
        if one is None or isinstance(one, fixed):
            raise unfillable(name, one, options=options)


def unfillable(name: str, one: Any, *, options: Sequence[str]) -> OptionInvalid:
    """The refusal of one value."""
    meant = get_close_matches(name, options, n=1)
    guess = f" Did you mean {meant[0]}=?" if meant else ""
    return OptionInvalid(
        f"{name}=: a {type(one).__qualname__} cannot be filled by a resume, so its saved value would be lost. "
        f"Pass what holds it, e.g. {name}={{'value': ...}}.{guess}"
    )
