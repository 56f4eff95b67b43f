"""Run position: where in its data a run was when it saved, told by the manifest; no array byte is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model_checkpoint.engine.root.listing import load_manifest
from model_checkpoint.engine.root.refs import Reference, choose_one
from model_checkpoint.manifest import Manifest, unpack
from model_checkpoint.tree.values.plain import plain_values

_PLACE = ("step", "epoch", "batch")
_REASONS = "run.reasons."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPosition:
    """Where a ``mc.Run`` was, and whether a resume repeats an unbroken run bit for bit."""

    step: int
    epoch: int
    batch: int  # consumed in that epoch
    exact: bool
    reasons: Sequence[str]


def run_position(ref: Reference) -> RunPosition | None:
    """Read it from the part ``run`` of a checkpoint; None if no run saved it.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-position", {"a": 1}, step=1)
        >>> run_position("memory://doc-position") is None
        True
    """
    store, found = choose_one(ref)
    return position_in(load_manifest(store, found.name))


def position_in(manifest: Manifest) -> RunPosition | None:
    """The same of a manifest that is here already."""
    values = plain_values(manifest.tree)
    place = [number for word in _PLACE if isinstance(number := values.get(f"run.place.{word}"), int)]
    if len(place) < len(_PLACE):
        return None
    reasons = [str(unpack(node)) for name, node in values.items() if name.startswith(_REASONS)]
    reasons += [f"{part} was left out by an emergency save" for part in manifest.left_out]
    step, epoch, batch = place
    return RunPosition(step=step, epoch=epoch, batch=batch, exact=not reasons, reasons=tuple(reasons))
