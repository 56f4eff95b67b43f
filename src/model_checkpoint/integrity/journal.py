"""Journal: small records by key in one file, written by many threads and processes, none of which can tear it.

Each change is one appended line with its own digest, flushed before the call returns. Whoever is killed while
appending leaves at most a torn last line, which the next writer cuts off. Lines that were overtaken are cleared out
now and then, by a whole new file in place of the old one. Nothing but this module touches the file.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from model_checkpoint import forks
from model_checkpoint.storage.contract.failures import UNSUPPORTED, typed_errors
from model_checkpoint.storage.local.paths import flush_folder, is_at, let_go, read_whole, write_whole
from model_checkpoint.storage.local.syscalls import SYSTEM, Syscalls

log = logging.getLogger("model_checkpoint.integrity")

Record = dict[str, Any]
_DIGEST_SIGNS = 16
_SPARE_LINES = 1000  # how many overtaken lines may stay in any file


class Journal:
    """Records by key, oldest change first.

    Example:
        >>> import tempfile
        >>> journal = Journal(tempfile.mkdtemp() + "/records.jsonl")
        >>> journal.write({"a": {"size": 3}, "b": {"size": 4}})
        >>> journal.write({"a": {"size": 5}, "b": None})
        >>> journal.read()
        {'a': {'size': 5}}
    """

    def __init__(self, path: str | os.PathLike[str], *, calls: Syscalls = SYSTEM) -> None:
        self.path = os.path.abspath(path)
        self._calls = calls
        self._lock = forks.lock()
        self._held: int | None = None
        self._forget()
        forks.in_child(self._begin_anew)

    def _forget(self) -> None:
        self._file: tuple[int, int] | None = None  # which file the records were read from
        self._records: dict[str, Record] = {}
        self._read_to = self._lines = self.damaged_lines = 0

    def _begin_anew(self) -> None:
        """In a forked child: another thread may have held the lock, which the child must not keep for it."""
        if self._held is not None:
            let_go(self._calls, self._held)
            self._held = None
        self._forget()

    def read(self) -> dict[str, Record]:
        """All records as they are now."""
        with self._lock, typed_errors(self.path, "could not be read"):
            try:
                with self._open(os.O_RDONLY, fcntl.LOCK_SH) as fd:
                    self._catch_up(fd)
            except FileNotFoundError:
                self._forget()
            return dict(self._records)

    def write(self, changes: Mapping[str, Record | None]) -> None:
        """Set the records of some keys, or remove those that become None; durable, and all of them or none."""
        self.change(lambda _: changes)

    def change(self, decide: Callable[[Mapping[str, Record]], Mapping[str, Record | None]]) -> None:
        """Make the changes that ``decide`` returns for the records as they are; nobody else writes in between."""
        with self._lock, typed_errors(self.path, "could not be written"):
            self._make_folder()
            with self._open(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as fd:
                self._catch_up(fd)
                changes = decide(dict(self._records))
                if changes:
                    self._append(fd, _line(changes))
                    self._take(changes)
                    if self._lines > 2 * len(self._records) + _SPARE_LINES:
                        self._clear_out()

    # inside, with the lock of this process held ----------------------------------------------------------------------

    def _make_folder(self) -> None:
        folder = os.path.dirname(self.path)
        try:
            self._calls.stat(folder)
        except FileNotFoundError:
            with suppress(FileExistsError):  # another one was faster
                self._calls.mkdir(folder)
            flush_folder(self._calls, os.path.dirname(folder))

    @contextmanager
    def _open(self, flags: int, lock: int) -> Iterator[int]:
        """The file, locked among processes; one that was replaced while we waited for the lock is let go again."""
        while True:
            fd = self._held = self._calls.open(self.path, flags)
            try:
                self._wait_for(fd, lock)
                if is_at(self._calls, fd, self.path):
                    yield fd
                    return
            finally:
                self._held = None
                let_go(self._calls, fd)

    def _wait_for(self, fd: int, lock: int) -> None:
        try:
            self._calls.flock(fd, lock)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            log.warning("%s: this file system has no locks; let only one process write there", self.path)

    def _catch_up(self, fd: int) -> None:
        """Read what was appended since we last looked, or all of it if it is another file."""
        info = self._calls.fstat(fd)
        if self._file != (info.st_dev, info.st_ino) or info.st_size < self._read_to:
            self._forget()
            self._file = (info.st_dev, info.st_ino)
        data = read_whole(self._calls, fd, info.st_size - self._read_to, offset=self._read_to)
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break  # torn: its writer was killed; the next one cuts it off
            self._read_to += len(line)
            self._lines += 1
            changes = _parsed(line)
            if changes is None:
                self.damaged_lines += 1
                log.error(
                    "%s: the line that ends at byte %d is damaged; what it said is lost", self.path, self._read_to
                )
            else:
                self._take(changes)

    def _take(self, changes: Mapping[str, Record | None]) -> None:
        for key, record in changes.items():
            self._records.pop(key, None)  # so that the order is that of the last change
            if record is not None:
                self._records[key] = record

    def _append(self, fd: int, line: bytes) -> None:
        new = self._read_to == 0
        try:
            if self._calls.fstat(fd).st_size > self._read_to:
                self._calls.ftruncate(fd, self._read_to)
            write_whole(self._calls, fd, line, offset=self._read_to)
            self._calls.fsync(fd)
            if new:
                flush_folder(self._calls, os.path.dirname(self.path))
        except BaseException:
            self._forget()  # what is on the medium now, the next call will see
            raise
        self._read_to += len(line)
        self._lines += 1

    def _clear_out(self) -> None:
        """Put a file with only the present records in place of this one; whoever waits for the old one notices."""
        draft = f"{self.path}.new"
        try:
            fd = self._calls.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                write_whole(self._calls, fd, _line(self._records))
                self._calls.fsync(fd)
            finally:
                let_go(self._calls, fd)
            self._calls.rename(draft, self.path)
            flush_folder(self._calls, os.path.dirname(self.path))
        except OSError as error:
            log.warning("%s: could not be cleared out, which only costs room (%s)", self.path, error)
        self._forget()


def _line(changes: Mapping[str, Record | None]) -> bytes:
    text = msgspec.json.encode(changes)
    return text + b" " + hashlib.sha256(text).hexdigest()[:_DIGEST_SIGNS].encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Record | None] | None:
    """What a line says; None if it is damaged."""
    text, _, digest = line.rstrip(b"\n").rpartition(b" ")
    if hashlib.sha256(text).hexdigest()[:_DIGEST_SIGNS].encode() != digest:
        return None
    changes: dict[str, Record | None] = msgspec.json.decode(text)
    return changes
