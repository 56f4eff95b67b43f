"""Checksums: SHA-256 of files and of data, as `sha256sum` prints it, many files at once; each byte is read once."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from model_checkpoint.errors import CheckpointException, ExceptionType, OptionInvalid, StorageFailure, UnsafeName
from model_checkpoint.performance.parallel_checkpoints import ParallelCheckpointProcessor
from model_checkpoint.storage.contract.failures import typed_errors

_TRIES = 3  # for a file that changes while it is being read

FilePath = str | os.PathLike[str]
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must be refused, not waited for


class FileMissing(CheckpointException, FileNotFoundError):
    """There is no such file, so it has no checksum."""

    default_type = ExceptionType.VALIDATION_FAILED


class FileState(StrEnum):
    """What a comparison of a file with its record found."""

    VERIFIED = "verified"
    NOT_TRACKED = "not_tracked"
    FILE_MISSING = "file_missing"
    SIZE_MISMATCH = "size_mismatch"
    CHECKSUM_MISMATCH = "checksum_mismatch"
    UNREADABLE = "unreadable"  # here and now, which does not prove that it is damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChecksum:
    """The checksum of one file, and what the file looked like when it was computed.

    Example:
        >>> FileChecksum(path="a", algorithm="sha256", checksum="ab", size=2).modified_ns
        0
    """

    path: str
    algorithm: str
    checksum: str
    size: int
    modified_ns: int = 0


class ChecksumCalculator:
    """Computes and compares checksums by ``algorithm``, reading ``chunk_size`` bytes at a time.

    Example:
        >>> ChecksumCalculator().data_checksum(b"abc")[:16]
        'ba7816bf8f01cfea'
    """

    def __init__(self, algorithm: str = "sha256", chunk_size: int = 1 << 20, *, max_workers: int | None = None) -> None:
        if algorithm not in hashlib.algorithms_guaranteed or algorithm.startswith("shake"):
            known = sorted(name for name in hashlib.algorithms_guaranteed if not name.startswith("shake"))
            raise OptionInvalid(f"checksum: unknown algorithm {algorithm!r}, expected one of {', '.join(known)}.")
        if chunk_size < 1:
            raise OptionInvalid(f"checksum: chunk_size is {chunk_size}, expected 1 or more.")
        self.algorithm, self._chunk_size = algorithm, chunk_size
        self._workers = ParallelCheckpointProcessor(max_workers)

    def data_checksum(self, data: bytes | bytearray | memoryview) -> str:
        """The checksum of bytes in memory."""
        return hashlib.new(self.algorithm, data).hexdigest()

    def file_checksum(self, path: FilePath) -> str:
        """The checksum of a file.

        Raises:
            FileMissing: there is no such file.
            UnsafeName: it is a folder, pipe or device.
        """
        return self.file_checksum_with_metadata(path).checksum

    def file_checksum_with_metadata(self, path: FilePath) -> FileChecksum:
        """The checksum of a file with its size and time of change, of one moment: a file that changes is read again.

        Example:
            >>> import pathlib, tempfile
            >>> file = pathlib.Path(tempfile.mkdtemp()) / "a"
            >>> _ = file.write_bytes(b"abc")
            >>> ChecksumCalculator().file_checksum_with_metadata(file).size
            3
        """
        name = os.fspath(path)
        with typed_errors(name, "could not be read"), _opened(name) as fd:
            for _ in range(_TRIES):
                before = os.fstat(fd)
                checksum, size = self._digest(fd, before.st_size)
                if _same(before, os.fstat(fd)) and size == before.st_size:
                    return FileChecksum(
                        path=name,
                        algorithm=self.algorithm,
                        checksum=checksum,
                        size=size,
                        modified_ns=before.st_mtime_ns,
                    )
        raise StorageFailure(
            f"{name}: changed {_TRIES} times while it was being read, so it has no one checksum. "
            "Stop whatever writes it, then try again.",
            name,
        )

    def _digest(self, fd: int, size: int) -> tuple[str, int]:
        """Read to the end, or beyond ``size``: a file that grows is not followed for ever."""
        digest, buffer, offset = hashlib.new(self.algorithm), memoryview(bytearray(self._chunk_size)), 0
        while offset <= size and (count := os.preadv(fd, [buffer], offset)):
            digest.update(buffer[:count])
            offset += count
        return digest.hexdigest(), offset

    def file_checksums(self, paths: Iterable[FilePath]) -> dict[str, FileChecksum]:
        """The checksums of many files, several at once, by path; raises the first error, in the order of ``paths``.

        Example:
            >>> ChecksumCalculator().file_checksums([])
            {}
        """
        found: dict[str, FileChecksum] = {}
        for outcome in self._workers.stream(paths, self.file_checksum_with_metadata):
            if outcome.value is None:
                raise outcome.error or AssertionError("a file without an outcome")
            found[outcome.value.path] = outcome.value
        return found

    def verify_data(self, data: bytes | bytearray | memoryview, expected: str) -> bool:
        """Whether bytes in memory have that checksum."""
        return self.data_checksum(data) == expected.lower()

    def verify_file(self, path: FilePath, expected: str) -> bool:
        """Whether a file has that checksum; False if it is missing."""
        try:
            return self.file_checksum(path) == expected.lower()
        except FileMissing:
            return False

    def verify_file_with_metadata(self, path: FilePath, expected: FileChecksum) -> FileState:
        """How a file compares with its record; one of another size is not read, and not one whose path leads nowhere.

        Example:
            >>> missing = FileChecksum(path="no/such", algorithm="sha256", checksum="ab", size=2)
            >>> ChecksumCalculator().verify_file_with_metadata("no/such", missing).value
            'file_missing'
        """
        try:
            if os.stat(path).st_size != expected.size:
                return FileState.SIZE_MISMATCH
            calculator = self if expected.algorithm == self.algorithm else ChecksumCalculator(expected.algorithm)
            found = calculator.file_checksum_with_metadata(path)
        except (FileNotFoundError, NotADirectoryError):
            return FileState.FILE_MISSING
        except OSError:
            return FileState.UNREADABLE
        if found.size != expected.size:
            return FileState.SIZE_MISMATCH
        return FileState.VERIFIED if found.checksum == expected.checksum.lower() else FileState.CHECKSUM_MISMATCH


def _same(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


@contextmanager
def _opened(name: str) -> Iterator[int]:
    """A regular file, open for reading."""
    try:
        fd = os.open(name, _OPEN)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileMissing(f"{name}: no such file, so it has no checksum. Check the path.", name) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise UnsafeName(f"{name}: is no regular file, so it has no checksum. Name a file.", name)
        yield fd
    finally:
        os.close(fd)
