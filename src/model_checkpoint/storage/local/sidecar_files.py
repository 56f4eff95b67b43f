"""Sidecar files: small values of a root, one file each in ``.sidecars``.

A value is written in a stage of its own, flushed, and takes its place by one rename; what a killed write left there
recovery removes like any other attempt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from model_checkpoint.errors import CheckpointException, LimitExceeded
from model_checkpoint.storage.contract.failures import in_doubt, typed_errors
from model_checkpoint.storage.contract.names import check_name, is_name
from model_checkpoint.storage.contract.sidecars import SIDECAR_BYTES, SidecarRead
from model_checkpoint.storage.local.locks import AttemptLock
from model_checkpoint.storage.local.paths import (
    RootPaths,
    flush_folder,
    let_go,
    list_folder,
    log,
    make_folder,
    open_regular,
    read_whole,
    refuse_link,
    remove_tree,
    write_whole,
)

_DRAFT = "sidecar"


def read_all(root: RootPaths, word: str) -> Iterator[SidecarRead]:
    """Every key that has ``word`` in it, with its bytes, or its error."""
    folder = root.sidecars
    with typed_errors(folder, "could not be listed"):
        refuse_link(root.calls, folder)
        keys = sorted(key for key in list_folder(root.calls, folder) if is_name(key) and word in key)
    for key in keys:
        try:
            found = _read_typed(root, key)
        except CheckpointException as error:
            yield key, error
        else:
            if found is not None:
                yield key, found


def _read_typed(root: RootPaths, key: str) -> bytes | None:
    """The bytes under ``key``; None if it was removed since it was listed."""
    with typed_errors(f"{root.sidecars}/{key}", "could not be read"):
        try:
            return _read(root, key)
        except FileNotFoundError:
            return None


def _read(root: RootPaths, key: str) -> bytes:
    fd, info = open_regular(root.calls, root.sidecars, key)
    try:
        if info.st_size > SIDECAR_BYTES:
            where = f"{root.sidecars}/{key}"
            raise LimitExceeded(f"{where}: has {info.st_size} bytes, the limit is {SIDECAR_BYTES}. Remove it.", where)
        return read_whole(root.calls, fd, info.st_size)
    finally:
        let_go(root.calls, fd)


def write(root: RootPaths, key: str, data: bytes) -> None:
    """Keep ``data`` under ``key``, durably."""
    path, attempt = f"{root.sidecars}/{check_name(key, root.sidecars)}", os.urandom(16).hex()
    with typed_errors(path, "could not be written"):
        make_folder(root.calls, root.sidecars)
        lock = AttemptLock(root, attempt, "")
        try:
            _write_draft(root, attempt, data)
            _put_in_place(root, attempt, key, data)
        finally:
            _tidy(root, attempt, lock)
    with in_doubt(path, "it was written"):
        flush_folder(root.calls, root.sidecars)


def _write_draft(root: RootPaths, attempt: str, data: bytes) -> None:
    root.calls.mkdir(root.stage(attempt))
    fd = root.calls.open(f"{root.stage(attempt)}/{_DRAFT}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_whole(root.calls, fd, data)
        root.calls.fsync(fd)
    finally:
        let_go(root.calls, fd)


def _put_in_place(root: RootPaths, attempt: str, key: str, data: bytes) -> None:
    """Rename the draft; if the reply was lost on the way, what is there tells."""
    try:
        root.calls.rename(f"{root.stage(attempt)}/{_DRAFT}", f"{root.sidecars}/{key}")
    except OSError as error:
        if not _holds(root, key, data):
            raise
        log.warning("%s/%s: its rename reported %s, but it arrived", root.sidecars, key, error)


def _holds(root: RootPaths, key: str, data: bytes) -> bool:
    try:
        return _read(root, key) == data
    except (OSError, CheckpointException):
        return False


def _tidy(root: RootPaths, attempt: str, lock: AttemptLock) -> None:
    """Remove the stage; what cannot be removed now is left to recovery."""
    try:
        remove_tree(root.calls, root.stage(attempt))
    except OSError as error:
        log.warning("%s: leavings stay until the next recovery (%s)", root.stage(attempt), error)
        lock.leave()
    else:
        lock.release()


def remove(root: RootPaths, key: str) -> None:
    """Forget ``key``, durably; needs no room."""
    path = f"{root.sidecars}/{check_name(key, root.sidecars)}"
    with typed_errors(path, "could not be removed"):
        refuse_link(root.calls, root.sidecars)
        try:
            root.calls.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            if not _is_gone(root, path):
                raise
            log.warning("%s: its removal reported %s, but it is gone", path, error)
    with in_doubt(path, "it was removed"):
        flush_folder(root.calls, root.sidecars)


def _is_gone(root: RootPaths, path: str) -> bool:
    try:
        root.calls.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
