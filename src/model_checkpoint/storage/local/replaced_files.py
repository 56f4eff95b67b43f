"""Replaced files: what an overwrite or a repair puts others in the place of, kept in the trash for its grace."""

from __future__ import annotations

import os
from collections.abc import Sequence

from model_checkpoint.storage.contract.failures import FULL, NO_LINKS
from model_checkpoint.storage.contract.names import MANIFEST, REPLACED_MANIFEST, TrashToken
from model_checkpoint.storage.local.paths import (
    RootPaths,
    attempt_of,
    decode_manifest,
    flush_folder,
    is_at,
    let_go,
    list_folder,
    log,
    make_folder,
    open_regular,
    remove_tree,
    write_whole,
)
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.storage.local.trash import throw_files

_PIECE = 4 << 20


def retire_files(root: RootPaths, name: str, files: Sequence[str], *, folder: int, kept: str) -> None:
    """Move the files of a replaced version to the trash; on a disk that has no room for that, remove them.

    They are taken out of the open ``folder`` they were replaced in: by now another version may have its name, and a
    file of a name of theirs. The folder ``kept`` holds a second name of the manifest they were in force by, if it
    could be had.
    """
    if not files:
        return
    try:
        _complete(root, throw_files(root, name, files, folder=folder), kept)
    except OSError as error:
        if error.errno not in FULL:
            raise
        log.warning("%s: the files it replaced are removed at once; the disk has no room to keep them", name)
        for file in files if is_at(root.calls, folder, root.checkpoint(name)) else ():
            remove_tree(root.calls, f"{root.checkpoint(name)}/{file}")


def retire_files_of(root: RootPaths, name: str, files: Sequence[str], *, attempt: str, kept: str) -> None:
    """Move the files of the version that ``attempt`` has replaced to the trash, if it is the one in place."""
    if not files:
        return
    calls, path = root.calls, root.checkpoint(name)
    try:
        folder = calls.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if attempt_of(calls, path) == attempt:
            retire_files(root, name, files, folder=folder, kept=kept)
    finally:
        let_go(calls, folder)


def keep_manifest(root: RootPaths, name: str, stage: str) -> None:
    """Give a manifest that is about to be replaced a second name in the stage, from where it follows its files."""
    calls = root.calls
    remove_tree(calls, f"{stage}/{REPLACED_MANIFEST}")  # of an earlier try
    folder = calls.open(stage, os.O_RDONLY | os.O_DIRECTORY)
    try:
        calls.link(f"{root.checkpoint(name)}/{MANIFEST}", REPLACED_MANIFEST, into=folder)
    except FileNotFoundError:
        log.debug("%s: gone already", name)
    except OSError as error:
        if error.errno not in (*FULL, *NO_LINKS):
            raise
        log.warning("%s: what is replaced now cannot be brought back (%s)", name, error)
    finally:
        let_go(calls, folder)


def _complete(root: RootPaths, bin_: str, kept: str) -> None:
    """Make files of a replaced version a checkpoint that can be brought back, if all that its manifest lists are there.

    A version that came between the look at the manifest and the switch has other files.
    """
    try:
        manifest = decode_manifest(root.calls, kept, file=REPLACED_MANIFEST)
    except FileNotFoundError:
        return
    if manifest is not None and {*manifest.file_names} <= {*list_folder(root.calls, bin_)}:
        flush_folder(root.calls, bin_)  # half a checkpoint must not come back
        root.calls.rename(f"{kept}/{REPLACED_MANIFEST}", f"{bin_}/{MANIFEST}")


def keep_replaced(root: RootPaths, name: str, files: Sequence[str]) -> None:
    """Give files of ``name`` that are about to be replaced a second name in the trash, durably.

    A manifest gets another one there, since a folder with a manifest would count as a checkpoint. Where there are no
    links a file is copied; it must not leave its place before the new one is there, since what is left of it counts.
    """
    if not files:
        return
    calls, folder = root.calls, root.checkpoint(name)
    bin_ = f"{root.trash}/{TrashToken.fresh(name, moment=calls.now())}"
    make_folder(calls, root.trash)
    calls.mkdir(bin_)
    pinned = calls.open(bin_, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for file in files:
            kept = REPLACED_MANIFEST if file == MANIFEST else file
            try:
                calls.link(f"{folder}/{file}", kept, into=pinned)
            except FileNotFoundError:
                log.debug("%s/%s: gone already", name, file)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                _copy(calls, folder, file, f"{bin_}/{kept}")
    finally:
        let_go(calls, pinned)
    flush_folder(calls, bin_)
    flush_folder(calls, root.trash)


def _copy(calls: Syscalls, folder: str, file: str, target: str) -> None:
    """Copy a file, durably, a piece at a time."""
    source, info = open_regular(calls, folder, file)
    try:
        copy = calls.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            piece, done = memoryview(bytearray(min(_PIECE, info.st_size))), 0
            while done < info.st_size and (count := calls.preadv(source, piece, done)):
                write_whole(calls, copy, bytes(piece[:count]), offset=done)
                done += count
            calls.fsync(copy)
        finally:
            let_go(calls, copy)
    finally:
        let_go(calls, source)
