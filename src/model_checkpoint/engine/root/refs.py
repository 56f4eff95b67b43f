"""Refs: how people name a checkpoint in one word: ``runs/a``, ``runs/a@100``, ``runs/a@best:val_loss``, a folder."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

import msgspec

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.root.listing import ListedCheckpoint, candidates
from model_checkpoint.errors import CheckpointNotFound, OptionInvalid, WrongReference
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import Root, open_store

Reference = Root | CheckpointInfo

_FOLDER = "/checkpoints/"
_DIGITS = 100  # what is longer is no step


class Ref(msgspec.Struct, frozen=True, kw_only=True):
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
    """Read a reference; what is there decides where a path could be taken two ways, as does a ``/`` at its end.

    Example:
        >>> parse_ref("runs/a@100").step, parse_ref("runs/a@best:val_loss").best, parse_ref("runs/a").chosen
        (100, 'val_loss', False)
        >>> import model_checkpoint as mc
        >>> parse_ref(mc.save("memory://doc-ref", {"a": 1}, step=100).path).name
        'step-00000100'
    """
    if isinstance(text, CheckpointInfo):
        return Ref(root=text.path.removesuffix(_FOLDER + text.prefix), name=text.prefix)
    whole = fspath(text)
    plain = whole if whole.endswith("://") else whole.rstrip("/") or whole  # a scheme alone is no path
    root, mark, choice = plain.rpartition("@")
    above, best, criteria = plain.partition("@best:")
    if best and "@" not in criteria and not _is_folder(plain):
        return _chosen(above, f"best:{criteria}", plain)  # a quotient has a / too
    if mark and "/" not in choice and whole == plain and not _is_folder(plain):
        return _chosen(root, choice, plain)
    root, mark, name = plain.rpartition(_FOLDER)
    if mark and name and "/" not in name and _is_checkpoint_folder(plain, root):
        return Ref(root=root, name=name)
    return Ref(root=plain)


def _is_folder(plain: str) -> bool:
    """Whether the text, ``@`` and all, is the path of a folder."""
    return "://" not in plain and open_store(plain).exists()


def _is_checkpoint_folder(plain: str, root: str) -> bool:
    """Whether a folder below one called ``checkpoints`` is meant as a checkpoint, and not as a root, new or used."""
    if not root or open_store(plain).names():
        return False
    above = open_store(root)
    return bool(above.names() or above.trash())


def _chosen(root: str, choice: str, plain: str) -> Ref:
    kind, mark, what = choice.partition(":")
    if not root or not choice or (mark and kind in ("best", "id") and not what):
        raise WrongReference(
            f"{plain}: not a reference. Write root@100, root@best:metric, root@id:3fa9 or root@name; a folder whose "
            "own name has an @ is written with a / at its end.",
            root,
        )
    if choice == "latest":
        return Ref(root=root)
    if choice.isdecimal() and len(choice) < _DIGITS:
        return Ref(root=root, step=int(choice))
    if mark and kind == "best":
        return Ref(root=root, best=what)
    if mark and kind == "id":
        return Ref(root=root, id=what)
    return Ref(root=root, name=choice)


def resolve(ref: Reference, **choice: Any) -> tuple[Store, dict[str, Any]]:
    """Return the store and the choice that a reference and keywords mean together; both may not choose."""
    if not isinstance(ref, (str, PathLike, CheckpointInfo)) or ref == "":
        return open_store(ref), choice
    parsed = parse_ref(ref)
    given = [key for key, value in choice.items() if value is not None]
    if parsed.chosen and given:
        named = ref.path if isinstance(ref, CheckpointInfo) else fspath(ref)
        raise OptionInvalid(f"{named} names a checkpoint already; leave {given[0]}= out, or give only the root.")
    return open_store(parsed.root), parsed.choice if parsed.chosen else choice


def choose(ref: Reference, **choice: Any) -> tuple[Store, Sequence[ListedCheckpoint]]:
    """Return the store and what answers a reference, first choice first.

    Raises:
        CheckpointNotFound: no root, or nothing in it, and nothing of it was named: a first start.
        WrongReference: what was named is not there.
    """
    store, wanted = resolve(ref, **choice)
    try:
        return store, candidates(store, **wanted)
    except CheckpointNotFound as error:
        named = any(wanted.get(key) is not None for key in ("step", "id", "name"))
        if not named and (wanted.get("best") is None or not store.exists() or not store.names()):
            _refuse_inside(store.url)
            raise
        raise WrongReference(error.message, error.checkpoint_path) from None


def _refuse_inside(url: str) -> None:
    """Refuse what lies in a root and is none itself: a slip, and no first start."""
    root, _, _ = f"{url}/".rpartition(_FOLDER)
    if root and open_store(root).names():
        raise WrongReference(f"{url}: no root, but a part of one. Give {root}, or {root}@100 for one checkpoint.", url)


def choose_one(ref: Reference, **choice: Any) -> tuple[Store, ListedCheckpoint]:
    """Return the store and the checkpoint a reference means; raise if its manifest cannot be used."""
    store, found = choose(ref, **choice)
    if found[0].error is not None:
        raise found[0].error
    return store, found[0]
