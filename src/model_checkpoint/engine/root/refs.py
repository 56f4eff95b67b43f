"""Refs: how people name a checkpoint in one word: ``runs/a``, ``runs/a@100``, ``runs/a@best:val_loss``, a folder."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.storage.locate import open_store

_FOLDER = "/checkpoints/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A root and which of its checkpoints is meant (none of the choices: the newest)."""

    root: str
    step: int | None = None
    id: str | None = None
    best: str | None = None
    name: str | None = None

    @property
    def choice(self) -> dict[str, Any]:
        """The choice as keywords of :func:`load` and its kin."""
        return {"step": self.step, "id": self.id, "best": self.best, "name": self.name}

    @property
    def chosen(self) -> bool:
        """Whether one checkpoint is named, not just the newest."""
        return any(value is not None for value in self.choice.values())


def parse_ref(text: str | PathLike[str] | CheckpointInfo) -> Ref:
    """Read a reference; what is there decides where a path could be taken two ways.

    Example:
        >>> parse_ref("runs/a@100").step, parse_ref("runs/a@best:val_loss").best, parse_ref("runs/a").chosen
        (100, 'val_loss', False)
        >>> parse_ref("runs/a/checkpoints/step-00000100/").name
        'step-00000100'
    """
    if isinstance(text, CheckpointInfo):
        return Ref(root=text.path.removesuffix(_FOLDER + text.prefix), name=text.prefix)
    plain = fspath(text)
    plain = plain.rstrip("/") or plain
    root, mark, choice = plain.rpartition("@")
    if mark and choice and "/" not in choice and not _is_folder(plain):
        return _chosen(root, choice)
    root, mark, name = plain.rpartition(_FOLDER)
    if mark and name and "/" not in name and not _is_root(plain):
        return Ref(root=root, name=name)
    return Ref(root=plain)


def _is_folder(plain: str) -> bool:
    """Whether the text, ``@`` and all, is the path of a folder."""
    return "://" not in plain and open_store(plain).exists()


def _is_root(plain: str) -> bool:
    """Whether a folder below one called ``checkpoints`` is itself a root, and no checkpoint."""
    return bool(open_store(plain).names())


def _chosen(root: str, choice: str) -> Ref:
    if choice == "latest":
        return Ref(root=root)
    if choice.isdecimal():
        return Ref(root=root, step=int(choice))
    if choice.startswith("best:"):
        return Ref(root=root, best=choice.removeprefix("best:"))
    if choice.startswith("id:"):
        return Ref(root=root, id=choice.removeprefix("id:"))
    return Ref(root=root, name=choice)
