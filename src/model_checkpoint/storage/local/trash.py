"""Trash: deleted checkpoints wait here until their grace ends, and can be brought back until then.

``.trash/<name>~<nanoseconds>~<salt>`` with a manifest is a checkpoint; without one it holds files that were in the way
or belonged to a replaced version. ``.trash/doomed~...`` is being removed and can no longer be brought back.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Sequence

from model_checkpoint.errors import StorageFailure
from model_checkpoint.storage.contract.failures import (
    doubt,
    in_doubt,
    name_taken_again,
    no_such_checkpoint,
    not_in_trash,
    typed_errors,
)
from model_checkpoint.storage.contract.names import MANIFEST, TrashToken
from model_checkpoint.storage.contract.store import Trashed
from model_checkpoint.storage.local.paths import (
    RootPaths,
    flush_folder,
    is_published,
    list_folder,
    log,
    make_folder,
    read_manifest,
    regular_files,
    remove_tree,
)

_DOOMED = "doomed~"
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
_TRIES = 16


def discard(root: RootPaths, name: str) -> Trashed:
    """Move a published checkpoint to the trash, durably."""
    source, token = root.checkpoint(name), TrashToken.fresh(name)
    with typed_errors(source, "could not be moved to the trash"):
        if not is_published(root, name):
            raise no_such_checkpoint(source, root.path)
        nbytes = sum(regular_files(root.calls, source).values())
        make_folder(root.calls, root.trash)
        _move(root, source, f"{root.trash}/{token}")
    with in_doubt(source, "it was moved to the trash"):
        flush_folder(root.calls, root.trash)
        flush_folder(root.calls, root.checkpoints)
    return Trashed(name=name, token=str(token), deleted=token.deleted, nbytes=nbytes)


def _move(root: RootPaths, source: str, target: str) -> None:
    """Rename a folder; if the reply was lost on the way, the folder's own number tells whether it arrived."""
    identity = root.calls.lstat(source)
    try:
        root.calls.rename(source, target)
    except OSError as error:
        if not _has_arrived(root, identity, target, error):
            raise
        log.warning("%s: its rename reported %s, but it arrived", target, error)


def _has_arrived(root: RootPaths, identity: os.stat_result, target: str, error: OSError) -> bool:
    """Let what is in place decide what became of a rename; if it cannot be looked at, nobody knows."""
    try:
        return os.path.samestat(identity, root.calls.lstat(target))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as second:
        raise doubt(error, target, "it may have been moved there") from second


def contents(root: RootPaths) -> list[Trashed]:
    """What can be brought back, oldest first."""
    with typed_errors(root.trash, "could not be listed"):
        tokens = [token for text in list_folder(root.calls, root.trash) if (token := TrashToken.find(text))]
        found = [item for token in tokens if (item := _describe(root, token))]
    return sorted(found, key=lambda item: item.deleted)


def _describe(root: RootPaths, token: TrashToken) -> Trashed | None:
    try:
        files = regular_files(root.calls, f"{root.trash}/{token}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    if MANIFEST not in files:
        return None
    return Trashed(name=token.name, token=str(token), deleted=token.deleted, nbytes=sum(files.values()))


def read(root: RootPaths, text: str) -> bytes:
    """The manifest of what lies in the trash under a token."""
    folder = f"{root.trash}/{TrashToken.parse(text, root.trash)}"
    with typed_errors(folder, "could not be read"):
        try:
            return read_manifest(root.calls, folder)
        except FileNotFoundError as error:
            raise not_in_trash(folder, root.path) from error


def bring_back(root: RootPaths, text: str) -> str:
    """Undo a discard, durably; return the name."""
    token = TrashToken.parse(text, root.trash)
    source, target = f"{root.trash}/{token}", root.checkpoint(token.name)
    with typed_errors(source, "could not be brought back"):
        if _describe(root, token) is None:
            raise not_in_trash(source, root.path)
        make_folder(root.calls, root.checkpoints)
        _move_back(root, source, token.name)
    with in_doubt(target, "it was brought back"):
        flush_folder(root.calls, root.checkpoints)
        flush_folder(root.calls, root.trash)
    return token.name


def _move_back(root: RootPaths, source: str, name: str) -> None:
    for _ in range(_TRIES):
        try:
            return _move(root, source, root.checkpoint(name))
        except OSError as error:
            if error.errno not in (*_TAKEN, errno.ENOTDIR):
                raise
            if not clear_the_way(root, name):
                raise name_taken_again(root.checkpoint(name)) from error
    raise StorageFailure(f"{source}: something keeps filling {root.checkpoint(name)}. Stop it, then try again.", source)


def clear_the_way(root: RootPaths, name: str) -> bool:
    """Empty a folder that stands under ``name`` without a manifest; False if a checkpoint or no folder is there.

    Its entries go to the trash one by one, by name, and the folder itself stays: a checkpoint that another process
    publishes in this very moment has other entries, so it cannot be moved by mistake.
    """
    folder = root.checkpoint(name)
    try:
        real = stat.S_ISDIR(root.calls.lstat(folder).st_mode)
        entries = root.calls.listdir(folder) if real else []
    except FileNotFoundError:
        return True
    if not real or MANIFEST in entries:
        return False
    log.warning("%s: holds %d entries but no manifest; they go to the trash", folder, len(entries))
    throw_files(root, name, entries)
    return True


def throw_files(root: RootPaths, name: str, files: Sequence[str]) -> None:
    """Move single files of ``name`` to the trash; those already gone are no error."""
    if not files:
        return
    bin_ = f"{root.trash}/{TrashToken.fresh(name)}"
    make_folder(root.calls, root.trash)
    root.calls.mkdir(bin_)
    for file in files:
        try:
            root.calls.rename(f"{root.checkpoint(name)}/{file}", f"{bin_}/{file}")
        except FileNotFoundError:
            log.debug("%s/%s: gone already", name, file)


def purge(root: RootPaths, grace: float) -> tuple[list[str], int]:
    """Remove what has been in the trash for longer than ``grace`` seconds; return the keys and the bytes.

    Each is renamed first, and that is flushed: nobody can bring back a checkpoint that is half removed.
    """
    calls, now = root.calls, time.time()
    entries = list_folder(calls, root.trash)
    over = [str(t) for text in entries if (t := TrashToken.find(text)) and now - t.deleted >= grace]
    taken = [token for token in over if _doom(root, token)]
    if taken:
        flush_folder(calls, root.trash)
    doomed = [text for text in entries if text.startswith(_DOOMED)] + [_DOOMED + token for token in taken]
    return taken, sum(remove_tree(calls, f"{root.trash}/{entry}") for entry in doomed)


def _doom(root: RootPaths, token: str) -> bool:
    try:
        root.calls.rename(f"{root.trash}/{token}", f"{root.trash}/{_DOOMED}{token}")
    except FileNotFoundError:
        return False  # brought back, or another recovery has it
    return True
