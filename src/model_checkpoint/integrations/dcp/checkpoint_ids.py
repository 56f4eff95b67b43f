"""Checkpoint ids: what ``checkpoint_id=`` of ``dcp.save`` and ``dcp.load`` means: ``<root>/<name of a checkpoint>``."""

from __future__ import annotations

import os
from typing import NamedTuple

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.plan import told_step, trainer_step


class NamedPlace(NamedTuple):
    """A root, and what a checkpoint in it is called."""

    root: str
    name: str

    @property
    def step(self) -> int | None:
        """The step that the name tells, if it tells one."""
        told = told_step(self.name)
        return trainer_step(self.name) if told is None else told


def named_place(checkpoint_id: str | os.PathLike[str]) -> NamedPlace:
    """Read a checkpoint id; the last part of it is the name.

    Example:
        >>> named_place("runs/a/step-100"), named_place("runs/a/step-100").step
        (NamedPlace(root='runs/a', name='step-100'), 100)
    """
    text = os.fspath(checkpoint_id).rstrip("/")
    root, slash, name = text.rpartition("/")
    if not name or name in (".", "..") or root.endswith(":/"):
        raise OptionInvalid(
            f"checkpoint_id={checkpoint_id!r}: expected the folder of one checkpoint, as in 'runs/a/step-100'."
        )
    return NamedPlace(root if root or not slash else "/", name) if slash else NamedPlace(".", name)
