"""Delete: put a checkpoint into the trash, and take it out again until its grace is over."""

from __future__ import annotations

import logging

import msgspec

from model_checkpoint.engine.common.info import CheckpointInfo, path_of
from model_checkpoint.engine.common.option_checks import as_step, require_words
from model_checkpoint.engine.root.intents import close_intents, open_intents
from model_checkpoint.engine.root.listing import ListedCheckpoint, read_listed, require_root, to_info
from model_checkpoint.engine.root.refs import Reference, choose, resolve
from model_checkpoint.errors import CheckpointException, CheckpointNotFound, OptionInvalid, WrongReference
from model_checkpoint.manifest import decode_summary
from model_checkpoint.storage.contract.shared import SharedTrash
from model_checkpoint.storage.contract.store import Store, Trashed

log = logging.getLogger("model_checkpoint.delete")


def delete(
    root: Reference,
    *,
    step: int | None = None,
    id: str | None = None,  # the name users know
    name: str | None = None,
) -> CheckpointInfo:
    """Move one checkpoint to the trash, durably; :func:`undelete` brings it back until its grace is over.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-delete", {"a": 1}, step=1)
        >>> mc.delete("memory://doc-delete", step=1).step
        1
        >>> mc.undelete("memory://doc-delete@1").step
        1
    """
    store, choice = resolve(root, step=step, id=id, name=name)
    if all(value is None for value in choice.values()):
        raise OptionInvalid(
            f"say which checkpoint to delete: step=, id=, name= or {store.url}@step; nothing is deleted by default"
        )
    found = choose(store, **choice)[1][0]
    info = to_info(store, found)
    store.discard(found.name)
    log.info("%s: moved to the trash", info.path)
    return info


def delete_planned(store: SharedTrash, token: str) -> None:
    """Carry out a deletion that many ranks have planned, unless they have given it up meanwhile.

    Example:
        >>> import model_checkpoint as mc
        >>> from model_checkpoint.storage import open_store
        >>> store = open_store("memory://doc-delete-planned")
        >>> _ = mc.save(store, {"a": 1}, step=1)
        >>> token = store.plan_discard(store.names()[0])
        >>> delete_planned(store, token)
        >>> store.settle_discard(token), store.names()
        (True, [])
    """
    store.discard_planned(token)
    log.info("%s: moved to the trash", token)


def discard_exactly(store: Store, name: str, id: str) -> bool:
    """Move ``name`` to the trash only if it is the checkpoint ``id``; an empty id means one that cannot be read.

    What another process put in its place meanwhile is brought back. False if it is not there (any more).
    """
    if not _is_there(store, name, id):
        return False
    try:
        gone = store.discard(name)
    except CheckpointNotFound:
        return False
    moved = look_at(store, gone)
    if _id(moved) != id and not isinstance(moved.error, CheckpointNotFound):  # a full disk may have no room for trash
        store.bring_back(gone.token)
        return False
    log.info("%s: moved to the trash", path_of(store, name))
    return True


def _id(found: ListedCheckpoint) -> str:
    return found.summary.id if found.summary is not None else ""


def undelete(root: Reference, *, step: int | None = None, name: str | None = None) -> CheckpointInfo:
    """Bring back the latest deletion, or the latest of a step or name, which may be given as a reference."""
    store, choice = resolve(root, step=step, name=name)
    try:
        require_root(store)
    except CheckpointNotFound as error:
        if all(value is None for value in choice.values()):
            raise
        raise WrongReference(error.message, error.checkpoint_path) from None
    step, name = choice.get("step"), choice.get("name")
    if step is not None and name is not None:
        raise OptionInvalid("choose what to bring back by step= or name=, not by both")
    if choice.get("best") is not None or choice.get("id") is not None:
        raise OptionInvalid(f"{store.url}: the trash is searched by step or name only; `mckpt trash` lists it")
    require_words(name=name)
    step = None if step is None else as_step(step)
    hits = [
        t
        for t in store.trash()
        if (name is None or t.name == name) and (step is None or look_at(store, t).step == step)
    ]
    if not hits:
        what = f" named {name!r}" if name is not None else "" if step is None else f" of step {step}"
        raise WrongReference(
            f"{store.url}: nothing{what} in the trash; its grace may be over. Look at what is left with `mckpt trash`.",
            store.url,
        )
    close_intents(store, open_intents(store))  # whoever takes something back does not mean the rest of a plan to go on
    found = look_at(store, hits[-1])  # before it is back, since another process may delete it again
    back = store.bring_back(hits[-1].token)
    log.info("%s: brought back from the trash", path_of(store, back))
    return to_info(store, found)


def undelete_exactly(store: Store, name: str, id: str) -> None:
    """Bring the checkpoint ``id`` back under ``name``; it may be back already.

    Raises:
        WrongReference: It is not in the trash (any more).
        StepExists: Another checkpoint has its name by now.
    """
    if _is_there(store, name, id):
        return
    hits = [one for one in store.trash() if one.name == name and _id(look_at(store, one)) == id]
    if not hits:
        raise WrongReference(
            f"{path_of(store, name)}: checkpoint {id} is not in the trash; its grace may be over. Look at what is left "
            "with `mckpt trash`.",
            store.url,
        )
    close_intents(store, open_intents(store))
    try:
        store.bring_back(hits[-1].token)
    except CheckpointException:
        if not _is_there(store, name, id):  # else another process was quicker
            raise
    log.info("%s: brought back from the trash", path_of(store, name))


def _is_there(store: Store, name: str, id: str) -> bool:
    found = read_listed(store, name)
    return found is not None and _id(found) == id


def look_at(store: Store, gone: Trashed) -> ListedCheckpoint:
    """What is in the trash, as it will be listed once it is back."""
    try:
        summary = decode_summary(store.read_trashed(gone.token), path_of(store, gone.name))
    except CheckpointException as error:
        return ListedCheckpoint(gone.name, None, error)
    return ListedCheckpoint(gone.name, msgspec.structs.replace(summary, name=gone.name))
