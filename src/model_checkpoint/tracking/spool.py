"""Spool: records that could not go where they belong, kept on disk until they can.

Each process appends to a file of its own, which it holds a lock on; whoever finds a file without a living owner may
replay it. A record is on the medium when :meth:`Spool.put` returns. A replay hands each record on once; only a process
killed between handing it on and noting that down leaves it to be handed on again, so what is done with a record must
be the same done twice. Invariant: nothing is removed before it was handed on, and nothing is passed over in silence.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from model_checkpoint import forks
from model_checkpoint.options import MIB
from model_checkpoint.storage.contract.failures import UNSUPPORTED, typed_errors
from model_checkpoint.storage.local.locks import take_lock
from model_checkpoint.storage.local.paths import (
    flush_folder,
    free_bytes,
    is_at,
    let_go,
    list_folder,
    make_folder,
    read_whole,
    write_whole,
)
from model_checkpoint.storage.local.syscalls import SYSTEM, Syscalls
from model_checkpoint.tracking.errors import SpoolFull
from model_checkpoint.tracking.spool_lines import SpoolLine, SpoolText, decode_lines, encode_line

log = logging.getLogger("model_checkpoint.tracking")

Apply = Callable[[str, dict[str, Any]], None]
ApplyMany = Callable[[str, list[dict[str, Any]]], None]

LIMIT = 1024 * MIB
_SEGMENT = 16 * MIB  # a file is left for a new one from there on, so that a replay never reads much at once
_SPOOLED, _REFUSED, _DAMAGED = ".spool", ".refused", ".damaged"
_DONE = "spool.done"  # a record that says up to which byte the file was handed on
_LONG_AGO = 24 * 3600.0  # a file of somebody else that old has no living owner, where there are no locks to tell


class Spool:
    """Records on disk under ``folder``, at most ``limit`` bytes of them; any number of processes and threads.

    Example:
        >>> import tempfile
        >>> spool = Spool(tempfile.mkdtemp())
        >>> spool.put("note", {"text": "kept"})
        >>> spool.replay(lambda kind, payload: print(kind, payload))
        note {'text': 'kept'}
        1
        >>> spool.replay(lambda kind, payload: print(kind, payload))
        0
    """

    def __init__(self, folder: str | os.PathLike[str], *, limit: int = LIMIT, calls: Syscalls = SYSTEM) -> None:
        self.folder = os.path.abspath(folder)
        self._limit, self._calls = limit, calls
        self._guard = forks.lock()
        self._segments: dict[str, _Segment] = {}  # by suffix
        self._others = 0  # bytes in other files when the last of them was begun
        self._left: set[str] = set()  # files this process will not write to again, for file systems without locks
        self._tried_refused = False
        forks.in_child(self._forget_parent)

    def _forget_parent(self) -> None:
        """In a forked child: the files are the parent's, and so are their locks as soon as we hold them no longer."""
        for segment in self._segments.values():
            let_go(self._calls, segment.fd)
        self._segments.clear()
        self._left.clear()

    def put(self, kind: str, payload: dict[str, Any]) -> None:
        """Keep one record; it is on the medium when this returns.

        Raises:
            SpoolFull: The bound is reached.
            StorageFailure: The medium refused it.
        """
        self._keep(kind, payload, _SPOOLED)

    def set_aside(self, kind: str, payload: dict[str, Any]) -> None:
        """Keep one record that was refused where it belongs; the next start tries it again.

        Example:
            >>> import tempfile
            >>> spool = Spool(tempfile.mkdtemp())
            >>> spool.set_aside("note", {"text": "refused"})
            >>> spool.nbytes() > 0
            True
        """
        self._keep(kind, payload, _REFUSED)

    def _keep(self, kind: str, payload: dict[str, Any], suffix: str) -> None:
        line = encode_line(kind, payload)
        with self._guard, typed_errors(self.folder, "could not keep a record in the spool", room=self._room):
            segment = self._segments.get(suffix) or self._begin(suffix)
            if self._others + sum(one.end for one in self._segments.values()) + len(line) > self._limit:
                raise self._full(len(line))
            try:
                segment.append(line)
            except BaseException:
                self._leave(suffix)  # what is whole in it counts; never written again, for its flush may have failed
                raise
            if segment.end >= _SEGMENT:
                self._leave(suffix)

    def _room(self) -> tuple[int, int]:
        return 0, free_bytes(self._calls, self.folder)

    def _full(self, wanted: int) -> SpoolFull:
        return SpoolFull(
            f"{self.folder}: the spool holds {self._limit} bytes at most, and {wanted} more would be too many; the "
            "record was not kept. Bring the database back, or give the spool a larger limit.",
            self.folder,
        )

    def _begin(self, suffix: str) -> _Segment:
        _make_folders(self._calls, self.folder)
        self._others = self.nbytes() - sum(one.end for one in self._segments.values())
        segment = self._segments[suffix] = _begin_segment(self._calls, self.folder, suffix)
        return segment

    def nbytes(self) -> int:
        """Bytes that wait in the folder, of all processes.

        Example:
            >>> Spool("/nonexistent").nbytes()
            0
        """
        total = 0
        for name in list_folder(self._calls, self.folder):
            with suppress(FileNotFoundError):  # handed on and removed meanwhile
                total += self._calls.lstat(f"{self.folder}/{name}").st_size
        return total

    def _leave(self, suffix: str) -> None:
        """Begin a new file with the next record; from now on anybody may replay the old one."""
        segment = self._segments.pop(suffix, None)
        if segment is not None:
            let_go(self._calls, segment.fd)
            self._left.add(segment.path)

    def close(self) -> None:
        """Leave what waits to whoever replays it."""
        with self._guard:
            for suffix in list(self._segments):
                self._leave(suffix)

    def replay(self, apply: Apply, *, refusals: tuple[type[Exception], ...] = ()) -> int:
        """Hand every record of this process, and of those that are no more, to ``apply``, oldest file first.

        An exception of ``apply`` ends the replay and is raised; what was handed on before stays so. One of
        ``refusals`` concerns its record alone: that is set aside in a file of its own, which the first replay of each
        later start tries again.

        Returns:
            How many records were handed on.
        """

        def one(kind: str, payloads: list[dict[str, Any]]) -> None:
            apply(kind, payloads[0])

        return self.replay_batches(one, nbytes=0, refusals=refusals)

    def replay_batches(
        self, apply: ApplyMany, *, nbytes: int = MIB // 4, refusals: tuple[type[Exception], ...] = ()
    ) -> int:
        """As :meth:`replay`, but hand on records of one kind in a row together, some ``nbytes`` of them at a time.

        If one of ``refusals`` meets several records, each is tried alone.

        Example:
            >>> import tempfile
            >>> spool = Spool(tempfile.mkdtemp())
            >>> for n in range(3):
            ...     spool.put("note", {"n": n})
            >>> spool.replay_batches(lambda kind, payloads: print(kind, payloads))
            note [{'n': 0}, {'n': 1}, {'n': 2}]
            3
        """
        self.close()
        wanted = (_SPOOLED,) if self._tried_refused else (_SPOOLED, _REFUSED)
        self._tried_refused = True
        with typed_errors(self.folder, "could not replay the spool"):
            names = sorted(name for name in list_folder(self._calls, self.folder) if name.endswith(wanted))
            return sum(self._replay_file(name, _Handing(apply, nbytes, refusals)) for name in names)

    def _replay_file(self, name: str, handing: _Handing) -> int:
        path = f"{self.folder}/{name}"
        try:
            fd = self._calls.open(path, os.O_RDWR)
        except FileNotFoundError:
            return 0  # another process was faster
        try:
            if not self._is_free(fd, path) or not is_at(self._calls, fd, path):
                return 0
            text = decode_lines(read_whole(self._calls, fd, self._calls.fstat(fd).st_size))
            handing.hand_on(_Segment(self._calls, fd, path, end=text.whole), text)
            self._remove(path, text, handing.refused)
            return handing.done
        finally:
            let_go(self._calls, fd)

    def _is_free(self, fd: int, path: str) -> bool:
        """Whether its owner is no more, or is this process; holds the file from then on."""
        try:
            self._calls.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            age = (self._calls.now().wall - self._calls.fstat(fd).st_mtime_ns) / 1e9
            return path in self._left or age > _LONG_AGO
        return True

    def _remove(self, path: str, text: SpoolText, refused: list[bytes]) -> None:
        """Remove what was handed on; what was refused or is damaged stays, under a name that says so."""
        if refused:
            aside = _begin_segment(self._calls, self.folder, _REFUSED)
            try:
                aside.append(b"".join(refused))
            finally:
                let_go(self._calls, aside.fd)
        if text.damaged:
            log.error(
                "%s: %d records are damaged (the first at byte %d); the others were handed on, the file is kept as %s",
                *(path, len(text.damaged), text.damaged[0], path + _DAMAGED),
            )
            self._calls.rename(path, path + _DAMAGED)
        else:
            self._calls.unlink(path)
        flush_folder(self._calls, self.folder)


class _Handing:
    """One file being handed on: how many records are through, and which were refused."""

    def __init__(self, apply: ApplyMany, nbytes: int, refusals: tuple[type[Exception], ...]) -> None:
        self._apply, self._nbytes, self._refusals = apply, nbytes, refusals
        self.done = 0
        self.refused: list[bytes] = []

    def hand_on(self, segment: _Segment, text: SpoolText) -> None:
        """Hand on what was not yet, and note in the file how far that is."""
        noted = max((line.payload["to"] for line in text.lines if line.kind == _DONE), default=0)
        waiting = [line for line in text.lines if line.kind != _DONE and line.end > noted]
        for some in _batches(waiting, self._nbytes):
            self._try(segment, some)
            if not self.refused:  # what was refused is still only here; a second go hands on again what came behind it
                segment.note(some[-1].end)

    def _try(self, segment: _Segment, lines: Sequence[SpoolLine]) -> None:
        kind = lines[0].kind
        try:
            self._apply(kind, [line.payload for line in lines])
            self.done += len(lines)
        except self._refusals as error:
            if len(lines) > 1:
                for line in lines:
                    self._try(segment, [line])
                return
            log.error("%s: a record of kind %r is refused and set aside: %s", segment.path, kind, error)
            self.refused.append(encode_line(kind, lines[0].payload))


def _batches(lines: Iterable[SpoolLine], nbytes: int) -> Iterator[list[SpoolLine]]:
    """Lines of one kind in a row, until they have some ``nbytes``."""
    some: list[SpoolLine] = []
    for line in lines:
        if some and (line.kind != some[0].kind or line.end - some[0].end >= nbytes):
            yield some
            some = []
        some.append(line)
    if some:
        yield some


class _Segment:
    """One file of records, locked by whoever writes it."""

    def __init__(self, calls: Syscalls, fd: int, path: str, *, end: int = 0) -> None:
        self._calls, self.fd, self.path, self.end = calls, fd, path, end

    def append(self, lines: bytes) -> None:
        """Write behind what is there, and flush."""
        write_whole(self._calls, self.fd, lines, offset=self.end)
        self._calls.fsync(self.fd)
        self.end += len(lines)

    def note(self, done: int) -> None:
        """Note how far a replay has come; not flushed, and left out where there is no room: it only spares work."""
        line = encode_line(_DONE, {"to": done})
        try:
            self._calls.ftruncate(self.fd, self.end)  # a torn tail was never promised to anybody
            write_whole(self._calls, self.fd, line, offset=self.end)
            self.end += len(line)
        except OSError as error:
            log.debug("%s: not noted that it was handed on up to byte %d: %s", self.path, done, error)


def _make_folders(calls: Syscalls, folder: str) -> None:
    """Make a folder and what is missing above it, durably."""
    try:
        calls.stat(folder)
    except FileNotFoundError:
        _make_folders(calls, os.path.dirname(folder))
        make_folder(calls, folder)


def _begin_segment(calls: Syscalls, folder: str, suffix: str) -> _Segment:
    """A new file, locked; a replay that came in between and removed it while it was empty makes us begin again."""
    while True:
        path = f"{folder}/{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}{suffix}"
        fd = calls.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            take_lock(calls, fd, path, otherwise="only this process replays it, others after a day")
            if is_at(calls, fd, path):
                flush_folder(calls, folder)
                return _Segment(calls, fd, path)
        except BaseException:
            let_go(calls, fd)
            raise
        let_go(calls, fd)
