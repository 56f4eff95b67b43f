"""Atomic file: a file that appears under its name whole and on the medium, or not at all.

The bytes go to a draft beside the target, which its writer keeps locked. A killed writer leaves a draft that nobody
holds; the next one who writes the same target removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path

from model_checkpoint.errors import CheckpointException, DiskFull, ExceptionType, StorageFailure
from model_checkpoint.flushing import flush

_DRAFT = ".part"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNSUPPORTED = (errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class TargetExists(CheckpointException, FileExistsError):
    """Something of that name is there already; nothing was written."""

    default_type = ExceptionType.STORAGE_ERROR


class DraftFile:
    """The file while it is being written; only what the system says of it becomes an error of ours."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.path, self._file = _locked_draft(target)
        self.size = 0

    @property
    def closed(self) -> bool:
        """Whether it takes no more bytes."""
        return self._file.closed

    def write(self, data: bytes | memoryview) -> int:
        """Write all of ``data`` after what was written before."""
        try:
            self.size += self._file.write(data)
        except OSError as error:
            raise _typed(error, self._target) from error
        return len(data)

    def flush(self) -> None:
        """Nothing: the bytes go to the medium once, at the end."""

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def appear(self, *, overwrite: bool) -> None:
        """Flush to the medium and take the name of the target."""
        with _typed_errors(self._target):
            self._file.flush()
            os.fsync(self._file.fileno())
            _rename(self.path, self._target, overwrite=overwrite)
            _flush_folder(self._target.parent)


@contextmanager
def atomic_write(target: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[DraftFile]:
    """Open a file to write; it gets the name ``target`` when the block ends well, and is gone when it does not.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows.csv"
        >>> with atomic_write(path) as file:
        ...     _ = file.write(b"a,b")
        >>> path.read_bytes()
        b'a,b'
    """
    path = Path(os.path.abspath(target))
    with _typed_errors(path):
        if path.exists() and not overwrite:
            raise TargetExists(
                f"{path}: exists already; nothing was written. Choose another name, or pass overwrite=True.", str(path)
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_dead_drafts(path)
        draft = DraftFile(path)
    try:
        yield draft
        draft.appear(overwrite=overwrite)
    finally:
        with suppress(OSError):  # its bytes were flushed before, or are wanted by nobody
            draft.close()
        draft.path.unlink(missing_ok=True)


def _locked_draft(target: Path) -> tuple[Path, BufferedWriter]:
    """Create and lock a draft; one that was taken for dead between the two is made anew."""
    while True:
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}{_DRAFT}")
        file = open(draft, "xb")  # noqa: SIM115  # closed by the draft
        with suppress(OSError):  # without locks nobody removes the drafts of the dead, which is safe
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        if draft.exists():
            return draft, file
        file.close()


def _rename(draft: Path, path: Path, *, overwrite: bool) -> None:
    """Give the draft its name; without ``overwrite`` a name that was taken meanwhile is refused, not replaced."""
    if overwrite:
        os.replace(draft, path)
        return
    try:
        os.link(draft, path)
    except FileExistsError:
        raise TargetExists(f"{path}: was made by somebody else meanwhile; it was left as it is.", str(path)) from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        os.rename(draft, path)  # a file system without links


def _remove_dead_drafts(path: Path) -> None:
    for draft in path.parent.glob(f".{_literal(path.name)}.????????{_DRAFT}"):
        with suppress(OSError), open(draft, "rb") as file:  # gone already, or locked by somebody who is alive
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()


def _literal(name: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


def _flush_folder(folder: Path) -> None:
    try:
        flush(folder)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


@contextmanager
def _typed_errors(path: Path) -> Iterator[None]:
    """Turn an error of the system into one of ours."""
    try:
        yield
    except CheckpointException:
        raise
    except OSError as error:
        raise _typed(error, path) from error


def _typed(error: OSError, path: Path) -> StorageFailure:
    said = os.strerror(error.errno) if error.errno else str(error)
    kind = DiskFull if error.errno in _FULL else StorageFailure
    return kind(
        f"{path}: could not be written ({said}). Check the path and the room on its disk, then try again.",
        str(path),
        code=error.errno,
        inner_exception=error,
    )
