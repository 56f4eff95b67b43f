"""Delete: put a checkpoint into the trash, and take it out again until its grace is over."""

from __future__ import annotations

import logging

from model_checkpoint.engine.common.info import CheckpointInfo, path_of
from model_checkpoint.engine.common.option_checks import as_step, require_words
from model_checkpoint.engine.root.listing import ListedCheckpoint, candidates, require_root, to_info
from model_checkpoint.errors import CheckpointException, CheckpointNotFound, OptionInvalid
from model_checkpoint.manifest import decode_summary
from model_checkpoint.storage.contract.store import Store, Trashed
from model_checkpoint.storage.locate import Root, open_store

log = logging.getLogger("model_checkpoint.delete")


def delete(
    root: Root,
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
        >>> mc.undelete("memory://doc-delete", step=1).step
        1
    """
    if step is None and id is None and name is None:
        raise OptionInvalid("say which checkpoint to delete: step=, id= or name=; nothing is deleted by default")
    store = open_store(root)
    found = candidates(store, step=step, id=id, name=name)[0]
    info = to_info(store, found)
    store.discard(found.name)
    log.info("%s: moved to the trash", info.path)
    return info


def undelete(root: Root, *, step: int | None = None, name: str | None = None) -> CheckpointInfo:
    """Bring back the latest deletion, or the latest of a step or name."""
    store = open_store(root)
    require_root(store)
    if step is not None and name is not None:
        raise OptionInvalid("choose what to bring back by step= or name=, not by both")
    require_words(name=name)
    step = None if step is None else as_step(step)
    hits = [
        t for t in store.trash() if (name is None or t.name == name) and (step is None or _step_of(store, t) == step)
    ]
    if not hits:
        what = f" named {name!r}" if name is not None else "" if step is None else f" of step {step}"
        raise CheckpointNotFound(
            f"{store.url}: nothing{what} in the trash; its grace may be over. Look at what is left with `mckpt trash`.",
            store.url,
        )
    back = store.bring_back(hits[-1].token)
    log.info("%s: brought back from the trash", path_of(store, back))
    return to_info(store, candidates(store, name=back)[0])


def _step_of(store: Store, gone: Trashed) -> int | None:
    """The step of a deleted checkpoint, by its folder's name where the manifest cannot be read."""
    try:
        summary = decode_summary(store.read_trashed(gone.token), path_of(store, gone.name))
    except CheckpointException as error:
        return ListedCheckpoint(gone.name, None, error).step
    return summary.step
