"""Shared attempt: what many ranks save or delete together, and the one step that decides what becomes of it.

Rank 0 begins the attempt and publishes it by a rename of its folder; whoever loses patience renames the same folder
away. Exactly one of them finds it. Over an existing checkpoint, the draft of the manifest in its folder is what both
reach for: once the stage is gone no draft can appear any more. Where stage and checkpoint change places, what lies in
the stage afterwards is the old version: whoever takes it away finds the new one in place, and reports success.

A deletion renames the checkpoint to a token that all ranks know; whoever loses patience puts a plain file there, so
that one of the two finds the name taken. A deletion that nobody gives up pays nothing for that, and needs no room.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from model_checkpoint.errors import DurabilityUnknown, RootNotShared
from model_checkpoint.storage.contract.failures import FULL, NO_LINKS, attempt_over, doubt, in_doubt, typed_errors
from model_checkpoint.storage.contract.names import MANIFEST, MANIFEST_DRAFT, TrashToken, check_name
from model_checkpoint.storage.local.attempt import LocalAttempt
from model_checkpoint.storage.local.commit import draft_name
from model_checkpoint.storage.local.data_files.files import LocalReader, open_reader
from model_checkpoint.storage.local.paths import (
    RootPaths,
    attempt_of,
    flush_folder,
    is_of_another,
    is_published,
    let_go,
    log,
    make_folder,
    regular_files,
    remove_tree,
)
from model_checkpoint.storage.local.trash import flush_move, is_plain, places, throw_version

_SEEN_WITHIN = 10.0  # seconds in which a file system on the network shows what another machine has made
_LOOK_AGAIN = 0.1


class SharedAttempt(LocalAttempt):
    """The attempt of rank 0: its files are all that lie in the stage, whoever wrote them."""

    _seen: tuple[str, ...] = ()

    @property
    def _files(self) -> tuple[str, ...]:
        with typed_errors(self._path, "could not look at the staged files"):
            try:
                found = regular_files(self._root.calls, self._path)
            except FileNotFoundError:  # published, or given up by another rank
                return self._seen
        self._seen = tuple(sorted(file for file in found if file not in (MANIFEST, MANIFEST_DRAFT)))
        return self._seen

    def flush(self) -> None:
        """Make the names of the files written here survive power loss."""
        with typed_errors(self._path, "could not be flushed to the medium"):
            flush_folder(self._root.calls, self._path)

    def open(self, file: str) -> LocalReader:
        """Open a sealed file of the stage."""
        self._require_open()
        return open_reader(self._root.calls, self._path, check_name(file, self._path), direct=True)

    def drop(self, files: Sequence[str]) -> None:
        """Remove files of the stage."""
        self._require_open()
        with typed_errors(self._path, "could not remove files that are of no use any more"):
            for file in files:
                self._root.calls.unlink(f"{self._path}/{check_name(file, self._path)}")
                self._writers.pop(file, None)


class JoinedAttempt(SharedAttempt):
    """The attempt as another rank sees it; what becomes of it is not for this rank to decide alone."""

    def _begin(self) -> int:
        """Find the stage that rank 0 made: its name is random, so that whoever sees it sees the same root."""
        end = time.monotonic() + _SEEN_WITHIN
        while True:
            try:
                return self._root.calls.lstat(self._path).st_dev
            except FileNotFoundError as error:
                if time.monotonic() < end:
                    time.sleep(_LOOK_AGAIN)
                    continue
                raise RootNotShared(
                    f"{self._path}: rank 0 has made this folder, but it is not there on this rank, so the ranks do not "
                    "write to the same place. Choose a root on a file system that all machines share, or a bucket.",
                    self._path,
                ) from error

    def beat(self) -> None:
        """Nothing: rank 0 has the lock of the attempt."""

    def publish(self, manifest: bytes, *, replace: bool = False, obsolete: object = ()) -> None:
        """Refused: rank 0 publishes."""
        raise attempt_over(self._path)

    def abort(self) -> None:
        """Close what is open; the files are removed by whoever settles the attempt."""
        self._stop()


def settle(root: RootPaths, name: str, attempt: str) -> bool:
    """End an attempt for good; see :meth:`model_checkpoint.storage.contract.shared.SharedStore.settle`."""
    target, aside = root.checkpoint(name), f"{root.staging}/aborted-{attempt}"
    with typed_errors(root.stage(attempt), "could not find out what became of the attempt"):
        mine = _moved_aside(root, attempt, aside)
        with suppress(FileNotFoundError, NotADirectoryError):  # not there yet or any more, and never will be
            root.calls.unlink(f"{target}/{draft_name(attempt)}")
        said = attempt_of(root.calls, target)
    if said == "":
        raise doubt(OSError(f"the manifest of {name} cannot be read"), target, "the checkpoint may be in place")
    if said == attempt:
        with in_doubt(target, "the checkpoint is in place"):  # who published it may have died before it could
            flush_folder(root.calls, root.checkpoints)
            flush_folder(root.calls, root.staging)
    if mine:
        _clear_away(root, name, attempt, aside)
    return said == attempt


def _moved_aside(root: RootPaths, attempt: str, aside: str) -> bool:
    """Take the stage away from whoever may still publish it; False if it is gone already."""
    try:
        root.calls.rename(root.stage(attempt), aside)
    except FileNotFoundError:
        return False
    return True


def _clear_away(root: RootPaths, name: str, attempt: str, aside: str) -> None:
    """Remove what was given up; what the attempt has changed places with goes to the trash."""
    try:
        if is_of_another(root.calls, aside, attempt):
            throw_version(root, name, aside)
        remove_tree(root.calls, aside)
    except OSError as error:
        log.warning("%s: leavings stay until the next recovery (%s)", aside, error)


def settle_discard(root: RootPaths, token: TrashToken) -> bool:
    """End a deletion for good; see :meth:`model_checkpoint.storage.contract.shared.SharedTrash.settle_discard`."""
    source = root.checkpoint(token.name)
    with typed_errors(source, "could not find out what became of its deletion"):
        make_folder(root.calls, root.trash)
        moved = next((place for place in places(root) if not _keep_out(root, place, token)), None)
        if moved == root.checkpoints:
            root.calls.unlink(f"{root.trash}/{token}")  # it would stand before what can be brought back
        gone = moved is not None or not is_published(root, token.name)
    with in_doubt(source, "it was deleted" if gone else "it is kept"):  # who deleted it may have died before it could
        flush_move(root, source=root.checkpoints, target=moved or root.trash)
    return gone


def _keep_out(root: RootPaths, place: str, token: TrashToken) -> bool:
    """Take the name to which a deletion would rename its checkpoint; False if that has done so before."""
    path = f"{place}/{token}"
    try:
        let_go(root.calls, root.calls.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return is_plain(root, path)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return _keep_out_by_link(root, place, token, error)
    return True


def _keep_out_by_link(root: RootPaths, place: str, token: TrashToken, full: OSError) -> bool:
    """The same where there is no inode left: a second name of the manifest needs none."""
    folder = root.calls.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        root.calls.link(f"{root.checkpoint(token.name)}/{MANIFEST}", str(token), into=folder)
    except FileExistsError:
        return is_plain(root, f"{place}/{token}")
    except FileNotFoundError:  # deleted, and perhaps removed for good
        return False
    except OSError as error:
        if error.errno not in (*FULL, *NO_LINKS):
            raise
        where = root.checkpoint(token.name)
        raise DurabilityUnknown(
            f"{where}: it is being deleted, or may be: the rank that was to do so does not answer, and the disk has no "
            "room to say that it is kept. Look for it (`mckpt ls`), and delete it again if it is still there.",
            where,
            code=full.errno,
            inner_exception=full,
        ) from error
    finally:
        let_go(root.calls, folder)
    return True
