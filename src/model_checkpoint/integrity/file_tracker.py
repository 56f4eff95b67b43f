"""File tracker: which files should be there, and with what content; compared with what is, by any number of processes.

The records lie in a :class:`~model_checkpoint.integrity.journal.Journal`. Files below the tracker's own folder are
known by their path from there, so that the folder can be moved as a whole.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from model_checkpoint.errors import CheckpointException
from model_checkpoint.integrity.checksums import ChecksumCalculator, FileChecksum, FilePath, FileState
from model_checkpoint.integrity.journal import Journal
from model_checkpoint.performance.parallel_checkpoints import ParallelCheckpointProcessor
from model_checkpoint.storage.local.syscalls import SYSTEM, Syscalls

log = logging.getLogger("model_checkpoint.integrity")

FILE_NAME = ".integrity.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedFile:
    """What the tracker knows of one file; times are seconds since 1970."""

    path: str
    algorithm: str
    checksum: str
    size: int
    modified_ns: int = 0
    added_at: float = 0.0
    verified_at: float | None = None
    state: FileState = FileState.VERIFIED  # at the last look

    @property
    def expected(self) -> FileChecksum:
        """What the file should be."""
        return FileChecksum(
            path=self.path,
            algorithm=self.algorithm,
            checksum=self.checksum,
            size=self.size,
            modified_ns=self.modified_ns,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerStatistics:
    """How many files are tracked, how large they are, and how they were at the last look."""

    files: int
    nbytes: int
    states: Mapping[str, int]
    damaged_lines: int  # of the tracker's own file: what they said is lost


class IntegrityTracker:
    """Remembers checksums of files, durably, in ``path``: a file, or a folder that gets one.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "weights.pt").write_bytes(b"abc")
        >>> tracker = IntegrityTracker(folder)
        >>> tracker.add_file(folder / "weights.pt").size
        3
        >>> tracker.verify_file(folder / "weights.pt").value
        'verified'
        >>> _ = (folder / "weights.pt").write_bytes(b"abd")
        >>> tracker.verify_file(folder / "weights.pt").value
        'checksum_mismatch'
    """

    def __init__(
        self, path: FilePath, *, calculator: ChecksumCalculator | None = None, calls: Syscalls = SYSTEM
    ) -> None:
        where = os.path.abspath(path)
        self._journal = Journal(os.path.join(where, FILE_NAME) if os.path.isdir(where) else where, calls=calls)
        self._folder = os.path.dirname(self._journal.path)
        self._calculator = calculator or ChecksumCalculator()
        self._workers = ParallelCheckpointProcessor()

    @property
    def path(self) -> str:
        """The file the records are in."""
        return self._journal.path

    def add_file(self, path: FilePath, *, known: FileChecksum | None = None) -> TrackedFile:
        """Remember a file as it is now, or as ``known``, which saves reading it once more; durable on return."""
        return self._add([known or self._calculator.file_checksum_with_metadata(path)], [path])[0]

    def add_files(self, paths: Iterable[FilePath]) -> list[TrackedFile]:
        """Remember many files, read several at once, with one flush."""
        chosen = list(paths)
        found = self._calculator.file_checksums(chosen)
        return self._add([found[os.fspath(path)] for path in chosen], chosen)

    def _add(self, found: Iterable[FileChecksum], paths: Iterable[FilePath]) -> list[TrackedFile]:
        now = time.time()
        added = [
            TrackedFile(**(asdict(one) | {"path": self._absolute(path)}), added_at=now, verified_at=now)
            for one, path in zip(found, paths, strict=True)
        ]
        self._journal.write({self._key(one.path): _to_record(one) for one in added})
        return added

    def get(self, path: FilePath) -> TrackedFile | None:
        """What is known of a file."""
        key = self._key(self._absolute(path))
        record = self._journal.read().get(key)
        return None if record is None else self._from_record(key, record)

    def files(self) -> dict[str, TrackedFile]:
        """Every tracked file by its absolute path, the one looked at longest ago first."""
        return {(file := self._from_record(key, one)).path: file for key, one in self._journal.read().items()}

    def verify_file(self, path: FilePath) -> FileState:
        """Read a file and compare it with its record."""
        known = self.get(path)
        if known is None:
            return FileState.NOT_TRACKED
        return self._note([known], {known.path: self._compare(known)})[known.path]

    def verify_all(
        self,
        *,
        seconds: float | None = None,
        progress: Callable[[int], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> dict[str, FileState]:
        """Compare every file, or as many as ``seconds`` allow, the one looked at longest ago first.

        What was not reached comes first the next time.
        """
        end = None if seconds is None else clock() + seconds
        files = list(self.files().values())
        due = (file for file in files if end is None or clock() < end)
        outcomes = self._workers.process(due, self._compare, progress=progress)
        found = {one.item.path: one.value if one.value is not None else FileState.UNREADABLE for one in outcomes}
        return self._note([one.item for one in outcomes], found)

    def _compare(self, known: TrackedFile) -> FileState:
        state = self._calculator.verify_file_with_metadata(known.path, known.expected)
        if state is FileState.VERIFIED:
            return state
        now = self.get(known.path)  # replaced and tracked anew while it was being read?
        if now is None:
            return FileState.NOT_TRACKED
        return state if now.expected == known.expected else self._compare(now)

    def _note(self, files: Iterable[TrackedFile], found: Mapping[str, FileState]) -> dict[str, FileState]:
        """Write down what was found, unless the file was tracked anew or forgotten meanwhile."""
        moment = time.time()
        seen = {self._key(file.path): (file, found[file.path]) for file in files}

        def decide(now: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any] | None]:
            return {
                key: _to_record(replace(file, state=state, verified_at=moment))
                for key, (file, state) in seen.items()
                if key in now and self._from_record(key, now[key]).expected == file.expected
            }

        try:
            self._journal.change(decide)
        except CheckpointException as error:  # what was found counts, also where it cannot be written down
            log.warning("what was found cannot be remembered: %s", error)
        return {file.path: state for file, state in seen.values()}

    def remove_file(self, path: FilePath) -> bool:
        """Forget a file; whether it was known."""
        return bool(self._remove(lambda file: file.path == self._absolute(path)))

    def cleanup_missing(self) -> list[str]:
        """Forget every file that is gone; their paths. One that cannot be looked at is kept."""
        return self._remove(lambda file: _is_gone(file.path))

    def _remove(self, unwanted: Callable[[TrackedFile], bool]) -> list[str]:
        """Forget files, unless they were tracked anew while we looked at them."""
        seen = self._journal.read()
        chosen = [key for key, record in seen.items() if unwanted(self._from_record(key, record))]
        gone: list[str] = []

        def decide(now: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any] | None]:
            gone.extend(key for key in chosen if now.get(key) == seen[key])
            return dict.fromkeys(gone)

        self._journal.change(decide)
        return [self._from_record(key, seen[key]).path for key in gone]

    def statistics(self) -> TrackerStatistics:
        """Sum up what is known."""
        files = self.files().values()
        return TrackerStatistics(
            files=len(files),
            nbytes=sum(file.size for file in files),
            states=Counter(file.state.value for file in files),
            damaged_lines=self._journal.damaged_lines,
        )

    def _absolute(self, path: FilePath) -> str:
        return os.path.abspath(path)

    def _key(self, path: str) -> str:
        below = os.path.relpath(path, self._folder)
        return path if below.startswith("..") else below

    def _from_record(self, key: str, record: Mapping[str, Any]) -> TrackedFile:
        path = os.path.normpath(os.path.join(self._folder, key))
        return TrackedFile(path=path, **(dict(record) | {"state": FileState(record["state"])}))


def _to_record(file: TrackedFile) -> dict[str, Any]:
    record = asdict(file)
    del record["path"]
    return record | {"state": file.state.value}


def _is_gone(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # no permission, no answer: that proves nothing
    return False
