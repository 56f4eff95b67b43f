"""MPI: messages of bytes between the ranks of a communicator, received by asking, since no call of MPI has a timeout.

With THREAD_MULTIPLE, which mpi4py asks for by itself, any thread may talk. With less only the thread that started MPI
may: what others have to say waits until that one comes by, which it does while it waits for a save to end.
Most launchers end the whole job when a rank is killed; only where they leave the others alive can these report it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from mpi4py import MPI

from model_checkpoint import forks
from model_checkpoint.coordination import PATIENCE
from model_checkpoint.distributed.coordinators.bounded import pause
from model_checkpoint.distributed.coordinators.kept_words import KeptWords
from model_checkpoint.distributed.coordinators.ranked import RankedCoordinator
from model_checkpoint.errors import OptionInvalid


@cache
def _attribute() -> int:
    """Under which a communicator keeps our own copy of it, until it is freed: another may get its handle then."""
    return int(MPI.Comm.Create_keyval())


def _any_thread() -> bool:
    return bool(MPI.Query_thread() >= MPI.THREAD_MULTIPLE)


def _may_talk() -> bool:
    """Whether this thread may call MPI."""
    return _any_thread() or bool(MPI.Is_thread_main())


class MpiCoordinator(RankedCoordinator):
    """The ranks of a communicator (default: all). The first one of a communicator is made by all ranks together.

    Example:
        >>> import model_checkpoint as mc
        >>> from model_checkpoint.distributed import MpiCoordinator
        >>> def checkpoint(state, step):  # on every rank, started by mpirun
        ...     return mc.save("/shared/run", state, step=step, coordinator=MpiCoordinator())

    Where MPI has no THREAD_MULTIPLE, a background save is committed while its ``result()`` is waited for, or awaited.
    """

    def __init__(self, comm: Any = None, *, patience: float = PATIENCE) -> None:
        if not _may_talk():
            raise OptionInvalid(
                "MpiCoordinator: MPI was started without THREAD_MULTIPLE, so only the thread that started it can talk. "
                "Make and use the coordinator there, or set mpi4py.rc.thread_level = 'multiple' before mpi4py.MPI is "
                "imported."
            )
        self._post = _post_of(MPI.COMM_WORLD if comm is None else comm)
        super().__init__(int(self._post.comm.rank), int(self._post.comm.size), patience)
        self.scope = self._post
        self.attend: Callable[[], None] | None = None if _any_thread() else self._post.come_by

    def put(self, key: str, value: bytes) -> None:
        """Send a value: of rank 0 to all, of any other to rank 0."""
        self._post.send(key, value)

    def collect(self, keys: Sequence[str], until: float) -> dict[str, bytes]:
        """What has come of ``keys`` when all are there, or at ``until``."""
        nap = 0.0002
        while True:
            found = self._post.found(keys)
            if len(found) == len(keys) or time.monotonic() >= until:
                return found
            nap = pause(nap, until)


_posts: list[_Post] = []  # what is under way must not lose its memory


def _post_of(comm: Any) -> _Post:
    """Our own copy of a communicator, so that no message is taken by the program."""
    found: Any = comm.Get_attr(_attribute())
    if found is None:
        found = _Post(comm.Dup())
        _posts.append(found)
        comm.Set_attr(_attribute(), found)
    made: _Post = found
    return made


class _Post:
    """Messages on one communicator: sent without waiting, received by whoever asks next."""

    def __init__(self, comm: Any) -> None:
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.comm = comm
        self._values: dict[str, bytes] = {}
        self._kept = KeptWords()
        self._outgoing: list[bytes] = []  # what waits for a thread that may send it
        self._under_way: list[tuple[Any, bytes]] = []
        self._guard = forks.lock()

    def send(self, key: str, value: bytes) -> None:
        """Begin to send, and let go of what has arrived."""
        name = key.encode()
        with self._guard:
            self._forget_old(key)
            self._values[key] = value
            self._outgoing.append(struct.pack("<I", len(name)) + name + value)
            self._carry()

    def found(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Receive what has come, and return what is there of ``keys``."""
        with self._guard:
            self._carry()
            return {key: self._values[key] for key in keys if key in self._values}

    def come_by(self) -> None:
        """Carry what other threads have to say, and receive what they wait for."""
        with self._guard:
            self._carry()

    def _carry(self) -> None:
        if not _may_talk():
            return
        others = range(1, self.comm.size) if self.comm.rank == 0 else (0,)
        self._under_way = [(request, kept) for request, kept in self._under_way if not request.Test()]
        for data in self._outgoing:
            self._under_way += [(self.comm.Isend([data, MPI.BYTE], other), data) for other in others]
        self._outgoing = []
        while self._receive():
            continue

    def _receive(self) -> bool:
        status = MPI.Status()
        message = self.comm.Improbe(status=status)
        if message is None:
            return False
        data = bytearray(status.Get_count(MPI.BYTE))
        message.Recv([data, MPI.BYTE])
        (length,) = struct.unpack_from("<I", data)
        key = bytes(data[4 : 4 + length]).decode()
        self._forget_old(key)
        self._values[key] = bytes(data[4 + length :])
        return True

    def _forget_old(self, key: str) -> None:
        """Keep only the words of the last calls."""
        for keys in self._kept.note(key).values():
            for gone in keys:
                self._values.pop(gone, None)
