"""Failures: an OSError of the system becomes an error that says where, what, and what to do next."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from model_checkpoint.errors import (
    CheckpointException,
    CheckpointNotFound,
    DiskFull,
    DurabilityUnknown,
    PermissionRefused,
    StepExists,
    StorageFailure,
    Truncated,
)

FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
UNSUPPORTED = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
NO_LINKS = (errno.EPERM, errno.EMLINK, errno.EXDEV, *UNSUPPORTED)

_NEXT_STEPS = {
    errno.EIO: "The medium reports an error: look at the system log, and save to another disk.",
    errno.ESTALE: "The server forgot the file: check the network mount, then try again.",
    errno.EMFILE: "Too many files are open: raise `ulimit -n`.",
    errno.ENFILE: "Too many files are open on this machine: close some programs.",
    errno.ENOENT: (
        "Something removed it meanwhile, or this file system takes nothing there, as /proc does not: check the path, "
        "and that no other program cleans this folder."
    ),
    errno.EFBIG: "A file size limit is in force: raise `ulimit -f`, or cut the data into smaller files.",
}


def is_refused(error: OSError) -> bool:
    """Whether the system said that this user may not."""
    return error.errno in REFUSED


def typed(error: OSError, where: str, doing: str, *, needed: int = 0, free: int = 0) -> StorageFailure:
    """The error of ours for a system error met while writing or moving.

    Example:
        >>> print(typed(OSError(28, "No space left on device"), "/data/x", "could not reserve 9 bytes", needed=9))
        /data/x: could not reserve 9 bytes, the disk is full or over quota (needs 9 bytes, 0 are free). Free some ...
    """
    said = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in FULL:
        figures = f" (needs {needed} bytes, {free} are free)" if needed > 0 else ""
        return DiskFull(
            f"{where}: {doing}, the disk is full or over quota{figures}. "
            "Free some room (`mckpt gc`), or save elsewhere; older checkpoints are untouched.",
            where,
            needed=needed,
            free=free,
            code=error.errno,
            inner_exception=error,
        )
    if is_refused(error):
        text = f"{where}: {doing}, the system refuses it ({said}). Check owner, mode and mount options of that path."
        return PermissionRefused(text, where, code=error.errno, inner_exception=error)
    step = _NEXT_STEPS.get(error.errno or 0, "Check the path and the file system, then try again.")
    return StorageFailure(f"{where}: {doing} ({said}). {step}", where, code=error.errno, inner_exception=error)


@contextmanager
def typed_errors(where: str, doing: str, *, room: Callable[[], tuple[int, int]] | None = None) -> Iterator[None]:
    """Turn every OSError of the block into a typed one; ``room`` gives (needed, free) bytes for ``DiskFull``."""
    try:
        yield
    except CheckpointException:
        raise
    except OSError as error:
        needed, free = _figures(room) if error.errno in FULL else (0, 0)
        raise typed(error, where, doing, needed=needed, free=free) from error


def _figures(room: Callable[[], tuple[int, int]] | None) -> tuple[int, int]:
    """What ``room`` says; nothing if the disk does not answer that either."""
    try:
        return room() if room is not None else (0, 0)
    except OSError:
        return 0, 0


@contextmanager
def in_doubt(where: str, what: str) -> Iterator[None]:
    """Turn an OSError after the point of no return into :class:`DurabilityUnknown`."""
    try:
        yield
    except CheckpointException:
        raise
    except OSError as error:
        raise doubt(error, where, what) from error


def doubt(error: OSError, where: str, what: str) -> DurabilityUnknown:
    """The error that is neither success nor clean failure."""
    said = os.strerror(error.errno) if error.errno else str(error)
    return DurabilityUnknown(
        f"{where}: {what}, but the last flush failed ({said}), so it may not survive a power loss. "
        "It was left in place: run `mckpt verify` on it, and save again to a healthy disk.",
        where,
        code=error.errno,
        inner_exception=error,
    )


def no_such_checkpoint(where: str, url: str) -> CheckpointNotFound:
    """The error for a name that is not published."""
    return CheckpointNotFound(f"{where}: no such checkpoint. List what is there with `mckpt ls {url}`.", where)


def not_in_trash(where: str, url: str) -> CheckpointNotFound:
    """The error for a key that holds no checkpoint (any more)."""
    return CheckpointNotFound(
        f"{where}: no such checkpoint in the trash; its grace may be over, or it was brought back already. "
        f"List what is there with `mckpt trash {url}`.",
        where,
    )


def name_taken(where: str) -> StepExists:
    """The error for a name that something published, or something that is no folder, already has."""
    return StepExists(
        f"{where}: a checkpoint of that name exists; nothing was changed. "
        "Choose another step or name, delete it first, or pass overwrite=True.",
        where,
    )


def name_taken_again(where: str) -> StepExists:
    """The error for bringing something back to a name that has been given to another since."""
    return StepExists(
        f"{where}: a checkpoint of that name exists, so the deleted one stays in the trash; nothing was changed. "
        "Give the present one another name first (rename its folder), then bring the deleted one back.",
        where,
    )


def attempt_over(where: str) -> StorageFailure:
    """The error for a stage that was published or aborted."""
    return StorageFailure(f"{where}: the attempt is over. Begin a new one.", where)


def deletion_over(where: str) -> StorageFailure:
    """The error for a deletion that other ranks have given up."""
    return StorageFailure(
        f"{where}: other ranks have given its deletion up, so it is kept. Delete it again.", where, code=errno.ENOENT
    )


class _Sealable(Protocol):
    @property
    def sealed(self) -> bool: ...


def require_sealed(where: str, writers: Mapping[str, _Sealable]) -> None:
    """Refuse to publish a stage whose files are not all on the medium."""
    if loose := [file for file, writer in writers.items() if not writer.sealed]:
        raise StorageFailure(
            f"{where}: {len(loose)} files are not sealed ({', '.join(loose[:3])}), so nothing was published. "
            "Seal every file; after a failed seal begin a new attempt.",
            where,
        )


def misused(where: str, what: str) -> StorageFailure:
    """The error for a writer that is used against its contract."""
    return StorageFailure(f"{where}: cannot go on with the file, {what}. Begin a new attempt.", where)


def require_within(where: str, offset: int, length: int, *, announced: int, room: int, still_open: bool) -> None:
    """Refuse bytes for a writer that is closed, or that lie outside its ``room`` for what was ``announced``."""
    if not still_open:
        raise misused(where, "it is closed already")
    if offset < 0 or offset + length > room:
        raise misused(where, f"bytes {offset} to {offset + length} lie outside the {announced} announced")


def sealed_size(where: str, size: int | None, *, announced: int, written: int, still_open: bool) -> int:
    """How large a file is in the end, by default as announced; refused if so much was never written.

    Example:
        >>> sealed_size("runs/a/x", 3, announced=5, written=4, still_open=True)
        3
    """
    if not still_open:
        raise misused(where, "it was sealed, or failed, before")
    final = announced if size is None else size
    if not 0 <= final <= min(written, announced):
        raise misused(where, f"only {written} of the {final} bytes announced were written")
    return final


def file_gone(where: str, file: str, *, listed: bool | None) -> Truncated:
    """The error for a file that is not there; ``listed`` by the manifest in place or not, None if there is none."""
    why = {
        None: "the checkpoint was deleted meanwhile. List what is there with `mckpt ls`, or bring it back with "
        "`mckpt restore`.",
        True: "its manifest lists it, so the checkpoint is damaged. Run `mckpt verify`, or load another step.",
        False: "the checkpoint was replaced meanwhile by one without it. Read its manifest again.",
    }[listed]
    return Truncated(f"{where}: the file {file} is gone; {why}", where, file=file)


def ended(where: str, file: str, *, wanted: range, end: int) -> Truncated:
    """The error for a file that ends before the bytes ``wanted``."""
    return Truncated(
        f"{where}: {file} ends at byte {end}, expected bytes {wanted.start} to {wanted.stop}. "
        "The checkpoint is damaged; run `mckpt verify`, or load another step.",
        where,
        file=file,
    )
