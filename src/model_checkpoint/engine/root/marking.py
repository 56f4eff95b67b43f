"""Marking: pin, tag and note a checkpoint, so that people and retention know what it is to them.

Marks are kept in the root, on every store. They follow a checkpoint into the trash and back.
"""

from __future__ import annotations

from typing import Any

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.root.listing import to_info
from model_checkpoint.engine.root.marks import NO_MARKS, MarkKind, add_mark, read_marks, remove_mark, with_marks
from model_checkpoint.engine.root.refs import Reference, choose_one, resolve
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.storage.contract.store import Store


def pin(
    root: Reference,
    *,
    step: int | None = None,
    id: str | None = None,  # the name users know
    name: str | None = None,
    best: str | None = None,
) -> CheckpointInfo:
    """Protect one checkpoint from retention until :func:`unpin`; the newest, if none is named.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-pin", {"a": 1}, step=1)
        >>> mc.pin("memory://doc-pin@1").pinned, mc.list_checkpoints("memory://doc-pin")[0].pinned
        (True, True)
    """
    return _add(root, MarkKind.PIN, [""], step=step, id=id, name=name, best=best)


def unpin(
    root: Reference, *, step: int | None = None, id: str | None = None, name: str | None = None
) -> CheckpointInfo:
    """Take the pin off one checkpoint, which must be named.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-unpin", {"a": 1}, step=1)
        >>> _ = mc.pin("memory://doc-unpin@1")
        >>> mc.unpin("memory://doc-unpin@1").pinned
        False
    """
    return _remove(root, MarkKind.PIN, [""], step=step, id=id, name=name)


def tag(
    root: Reference,
    *tags: str,
    step: int | None = None,
    id: str | None = None,
    name: str | None = None,
    best: str | None = None,
) -> CheckpointInfo:
    """Give one checkpoint words to be found and kept by; the newest, if none is named.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-tag", {"a": 1}, step=1)
        >>> mc.tag("memory://doc-tag@1", "release", "paper").tags
        ('paper', 'release')
    """
    return _add(root, MarkKind.TAG, _some(tags), step=step, id=id, name=name, best=best)


def untag(
    root: Reference, *tags: str, step: int | None = None, id: str | None = None, name: str | None = None
) -> CheckpointInfo:
    """Take words off one checkpoint, which must be named.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-untag", {"a": 1}, step=1)
        >>> _ = mc.tag("memory://doc-untag@1", "release", "paper")
        >>> mc.untag("memory://doc-untag@1", "paper").tags
        ('release',)
    """
    return _remove(root, MarkKind.TAG, _some(tags), step=step, id=id, name=name)


def note(
    root: Reference,
    text: str,
    *,
    step: int | None = None,
    id: str | None = None,
    name: str | None = None,
    best: str | None = None,
) -> CheckpointInfo:
    """Write a remark on one checkpoint, in place of the former; an empty one removes it.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-note", {"a": 1}, step=1)
        >>> mc.note("memory://doc-note@1", "before the new data").note
        'before the new data'
    """
    if text == "":
        return _remove(root, MarkKind.NOTE, [""], step=step, id=id, name=name)
    return _add(root, MarkKind.NOTE, [text], step=step, id=id, name=name, best=best)


def _some(tags: tuple[str, ...]) -> tuple[str, ...]:
    if not tags:
        raise OptionInvalid('say which tags, e.g. mc.tag("runs/a@100", "release"). Nothing was done.')
    return tags


def _add(root: Reference, kind: MarkKind, texts: list[str] | tuple[str, ...], **choice: Any) -> CheckpointInfo:
    store, found = choose_one(root, **choice)
    info = to_info(store, found)
    for text in texts:
        add_mark(store, info.id, kind, text)
    return _marked(store, info)


def _remove(root: Reference, kind: MarkKind, texts: list[str] | tuple[str, ...], **choice: Any) -> CheckpointInfo:
    store, wanted = resolve(root, **choice)
    if all(value is None for value in wanted.values()):
        raise OptionInvalid(
            f"say which checkpoint to take a {kind.value} off: {store.url}@step, or by step=, id= or name="
        )
    info = to_info(*choose_one(root, **choice))
    for text in texts:
        remove_mark(store, info.id, kind, text)
    return _marked(store, info)


def _marked(store: Store, info: CheckpointInfo) -> CheckpointInfo:
    return with_marks(info, read_marks(store, info.id).get(info.id, NO_MARKS))
