"""Commit: the commit protocol, from a finished stage to a durable checkpoint.

New: the manifest appears in the stage, the stage is flushed, one rename puts it in place, both parents are flushed,
the new one first: the old name may vanish only when the new one cannot. Over an existing one: the new files get a
second name in its folder, the folder is flushed, one rename switches the manifest, the folder is flushed. Where a new
file has a name that the old version may have too, stage and checkpoint change places as wholes, by one exchange of
their names. Nothing old is removed before the new is committed, nothing is flushed twice after a failure, and when an
answer of the system leaves doubt, the attempt id in the manifest in place decides.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

import msgspec

from model_checkpoint.errors import CheckpointException, StorageFailure
from model_checkpoint.storage.contract.failures import (
    NO_LINKS,
    UNSUPPORTED,
    doubt,
    in_doubt,
    name_taken,
    typed,
    typed_errors,
)
from model_checkpoint.storage.contract.names import MANIFEST, MANIFEST_DRAFT
from model_checkpoint.storage.local.paths import (
    RootPaths,
    attempt_of,
    flush_folder,
    free_bytes,
    is_published,
    let_go,
    log,
    remove_tree,
    stamp_of,
    write_whole,
)
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.storage.local.trash import clear_the_way

_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
_NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EISDIR, *UNSUPPORTED)
_NO_SWAP = (errno.EINVAL, *UNSUPPORTED)
_TRIES = 16


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """A stage whose files are all sealed."""

    root: RootPaths
    name: str
    attempt: str
    files: tuple[str, ...]

    @property
    def path(self) -> str:
        """The stage's folder."""
        return self.root.stage(self.attempt)

    @property
    def target(self) -> str:
        """The folder it wants to become, or join."""
        return self.root.checkpoint(self.name)


def draft_name(attempt: str) -> str:
    """What the new manifest is called in an existing folder until the switch; recovery knows it by the attempt id."""
    return f"manifest.{attempt}.tmp"


def write_manifest(staged: Staged, manifest: bytes) -> None:
    """Put the manifest into the stage; from here on the stage is a complete checkpoint nobody sees."""
    calls, draft = staged.root.calls, f"{staged.path}/{MANIFEST_DRAFT}"

    def room() -> tuple[int, int]:
        return len(manifest), free_bytes(calls, staged.path)

    with typed_errors(draft, "could not write the manifest", room=room):
        fd = calls.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            write_whole(calls, fd, manifest)
            calls.fsync(fd)
        except BaseException:
            let_go(calls, fd)
            raise
        calls.close(fd)
        calls.rename(draft, f"{staged.path}/{MANIFEST}")


def link_copy(calls: Syscalls, source: str, folder: str, *, file: str, identity: str) -> bool:
    """Give the file ``source`` a second name in ``folder``; False if that is impossible or it is another copy.

    What was linked is looked at, not what was to be linked, so that nothing can be swapped in between.
    """
    pinned = calls.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        calls.link(source, file, into=pinned)
    except OSError as error:
        if error.errno not in (*NO_LINKS, errno.ENOENT, errno.EACCES):
            raise
        log.warning("%s: cannot be linked (%s), so it is written again", source, error)
        return False
    finally:
        let_go(calls, pinned)
    info = calls.lstat(f"{folder}/{file}")
    if stat.S_ISREG(info.st_mode) and stamp_of(info).identity == identity:
        return True
    log.warning("%s: is not the file its manifest speaks of, so it is written again", source)
    calls.unlink(f"{folder}/{file}")
    return False


def commit_new(staged: Staged) -> None:
    """Make the stage the checkpoint; raise ``StepExists`` if a published one has the name."""
    root = staged.root
    with typed_errors(staged.path, "could not be flushed to the medium"):
        flush_folder(root.calls, staged.path)
    for _ in range(_TRIES):
        try:
            root.calls.rename(staged.path, staged.target)
        except OSError as error:
            if not _landed(staged, error):
                continue
        with in_doubt(staged.target, "the checkpoint is in place"):
            flush_folder(root.calls, root.checkpoints)
            flush_folder(root.calls, root.staging)
        return
    raise StorageFailure(
        f"{staged.target}: something keeps filling that folder. Stop it, then save again.", staged.target
    )


def _landed(staged: Staged, error: OSError) -> bool:
    """Whether the stage is in place in spite of ``error``; False if the way is now clear to try again."""
    if _is_in_place(staged, error):
        return True
    if error.errno not in _TAKEN:
        raise typed(error, staged.target, "could not put the checkpoint in place") from error
    with typed_errors(staged.target, "could not clear the way"):
        if not clear_the_way(staged.root, staged.name):
            raise name_taken(staged.target) from error
    return False


def _is_in_place(staged: Staged, error: OSError) -> bool:
    """Let the manifest in place decide what became of a rename; if it cannot be read, nobody knows."""
    if isinstance(error, CheckpointException):  # who makes the calls has refused this one: its time was over
        raise error
    try:
        ours = attempt_of(staged.root.calls, staged.target) == staged.attempt
    except OSError as second:
        raise doubt(error, staged.target, "the checkpoint may be in place") from second
    if ours:
        log.warning("%s: the rename reported %s, but the manifest in place is ours", staged.target, error)
    return ours


def hold_still(calls: Syscalls, folder: int, *, alone: bool) -> None:
    """Until the open folder is closed, keep whoever mends it out, or with ``alone`` everybody who switches manifests.

    Only where folders can be locked.
    """
    try:
        calls.flock(folder, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    except OSError as error:
        if error.errno not in _NO_FOLDER_LOCKS:
            raise
        log.debug("this file system cannot lock folders (%s)", error)


def commit_over(staged: Staged) -> int | None:
    """Switch an existing checkpoint to the staged files and return its folder, open, for the old ones to be taken from.

    None if it vanished, and the stage is whole (again).
    """
    folder = _open_target(staged)
    if folder is None:
        return None
    try:
        if _join(staged, folder) and _switched(staged, folder):
            return folder
        _take_back(staged, folder)
    except BaseException:
        let_go(staged.root.calls, folder)
        raise
    let_go(staged.root.calls, folder)
    return None


def _open_target(staged: Staged) -> int | None:
    """The folder of the checkpoint to replace; None if it is gone."""
    with typed_errors(staged.target, "could not open the checkpoint to replace"):
        try:
            return staged.root.calls.open(staged.target, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _join(staged: Staged, folder: int) -> bool:
    """Give every staged file a name in the folder; False if the folder was moved away meanwhile."""
    with typed_errors(staged.target, "could not add the new files"):
        try:
            for file in staged.files:
                _add(staged, file, file, folder)
            _add(staged, MANIFEST, draft_name(staged.attempt), folder)
            staged.root.calls.fsync(folder)
        except OSError:
            if _is_still(staged, folder):
                raise
        return _is_still(staged, folder)


def _add(staged: Staged, source: str, target: str, folder: int) -> None:
    """Link one file, so that the stage stays whole; move it where there are no links."""
    calls, path = staged.root.calls, f"{staged.path}/{source}"
    try:
        calls.link(path, target, into=folder)
    except FileExistsError:  # the reply to a link may get lost like any other
        if not os.path.samestat(calls.lstat(path), calls.lstat(f"{staged.target}/{target}")):
            raise
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        calls.rename(path, target, into=folder)


def _take_back(staged: Staged, folder: int) -> None:
    """Make the stage whole again where files were moved into a folder that another process has deleted since."""
    calls = staged.root.calls
    with typed_errors(staged.path, "could not take the new files back from the deleted checkpoint"):
        moved = {*staged.files, MANIFEST} - set(calls.listdir(staged.path))
        for file in sorted(moved - {MANIFEST}):
            calls.rename(file, f"{staged.path}/{file}", out_of=folder)
        if MANIFEST in moved:
            _take_manifest_back(staged, folder)


def _take_manifest_back(staged: Staged, folder: int) -> None:
    """It still has the name of a draft, or is switched to already: then a third process may have switched again."""
    calls, home = staged.root.calls, f"{staged.path}/{MANIFEST}"
    try:
        calls.rename(draft_name(staged.attempt), home, out_of=folder)
    except FileNotFoundError:
        calls.rename(MANIFEST, home, out_of=folder)
    if attempt_of(calls, staged.path) not in (staged.attempt, ""):
        raise StorageFailure(
            f"{staged.target}: was replaced by others and deleted at the same time, and this file system has no links, "
            "so the new checkpoint is lost. Save again.",
            staged.target,
        )


def _is_still(staged: Staged, folder: int) -> bool:
    """Whether the open folder is the one that has the checkpoint's name."""
    calls = staged.root.calls
    try:
        return os.path.samestat(calls.lstat(staged.target), calls.fstat(folder))
    except FileNotFoundError:
        return False


def _switched(staged: Staged, folder: int) -> bool:
    """The point of no return of a replacement, one rename of the manifest; False if the folder was moved away."""
    calls = staged.root.calls
    try:
        hold_still(calls, folder, alone=False)  # who mends the old version must not put its manifest over ours
        calls.rename(draft_name(staged.attempt), MANIFEST, out_of=folder, into=folder)
    except OSError as error:
        if not _is_in_place(staged, error):
            raise typed(error, staged.target, "could not switch to the new manifest") from error
    with in_doubt(staged.target, "the checkpoint is replaced"):
        calls.fsync(folder)
        return _is_still(staged, folder)


def can_swap(root: RootPaths) -> bool:
    """Whether two folders can change places on this file system, as far as two that are made for it can."""
    calls, one = root.calls, f"{root.staging}/swap-{os.urandom(8).hex()}"
    with typed_errors(one, "could not find out whether folders can change places"):
        try:
            for folder in (one, f"{one}-too"):
                calls.mkdir(folder)
            calls.exchange(one, f"{one}-too")
        except OSError as error:
            if error.errno not in _NO_SWAP:
                raise
            return False
        finally:
            for folder in (one, f"{one}-too"):
                remove_tree(calls, folder)
    return True


def commit_swap(staged: Staged) -> bool:
    """Let stage and checkpoint change places; False if there is none any more. The stage then is what was replaced."""
    calls = staged.root.calls
    with typed_errors(staged.path, "could not be flushed to the medium"):
        flush_folder(calls, staged.path)
        flush_folder(calls, staged.root.staging)  # its name there, too: what an exchange saves is that both change
    folder = _open_target(staged)
    if folder is None:
        return False
    try:
        return _exchanged(staged, folder)
    finally:
        let_go(calls, folder)


def _exchanged(staged: Staged, folder: int) -> bool:
    """The point of no return of a replacement as a whole; False if the checkpoint is gone."""
    root = staged.root
    try:
        hold_still(root.calls, folder, alone=False)  # who mends the old version must not do so in what is now ours
        root.calls.exchange(staged.path, staged.target)
    except OSError as error:
        if not _is_in_place(staged, error):
            with typed_errors(staged.target, "could not look at the checkpoint to replace"):
                if isinstance(error, FileNotFoundError) and not is_published(root, staged.name):
                    return False
            raise typed(error, staged.target, "could not change places with the new version") from error
    with in_doubt(staged.target, "the checkpoint is replaced"):
        flush_folder(root.calls, root.checkpoints)
    return True
