"""Loader workers: they outlive signals meant for the process that will save, and end with it all the same.

Schedulers and terminals signal a whole group. A worker that died of it would raise in the midst of the body that is to
be finished. So workers ignore those signals, from their very beginning; and since they then also ignore being told to
end that way, whoever made them ends them in the way of their own queue, at the latest when the program ends.

The loaders a run reads are made so here. Those it knows nothing of, as of evaluations, and pools of processes are seen
as they fork, while a run listens for signals: such a worker never lets them in, and its maker ends it by another one.
Of those that live on, their maker draws a seed from the program's generator only once: that shifts what a resumed run
draws, so they are counted.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MAKE_WORKERS = (  # the modules of what workers run
    "torch.utils.data._utils.worker",
    "torchdata.stateful_dataloader.worker",
    "multiprocessing.pool",
    "concurrent.futures.process",
)
_NEAR = 8  # calls between an iterator that makes a worker and its fork
_alive: weakref.WeakSet[Any] = weakref.WeakSet()


class DeafWorker:
    """A ``worker_init_fn`` after which those signals do no harm."""

    def __init__(self, then: Callable[[int], Any] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        """Begin the life of a worker, whose signals were held back until now."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if self._then is not None:
            self._then(worker)


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold signals back while workers are made: they inherit that, until they have become deaf."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    _forking.ours = True
    try:
        yield
    finally:
        _forking.ours = False
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_at_exit(iterator: Any) -> None:
    """End the workers of a loader's iterator when the program ends, before anyone waits for them in vain."""
    if hasattr(iterator, "_shutdown_workers"):
        _alive.add(iterator)
        iterator._mckpt_owner = os.getpid()
        atexit.unregister(_end_all)
        atexit.register(_end_all)  # the last to be registered is the first to run


def end_workers(iterator: Any) -> None:
    """End the workers of a loader's iterator now; no other process than their maker can."""
    if getattr(iterator, "_mckpt_owner", None) == os.getpid():
        iterator._shutdown_workers()
        _alive.discard(iterator)


def _end_all() -> None:
    for iterator in list(_alive):
        end_workers(iterator)


class Listening(Protocol):
    """Who hears signals for a while."""

    @property
    def is_closed(self) -> bool:
        """Whether it hears them no longer."""
        ...


_listening: weakref.WeakSet[Any] = weakref.WeakSet()


def spare_workers(notice: Listening) -> None:
    """Let all workers that are forked outlive signals, as long as ``notice`` hears them."""
    _listening.add(notice)


class _Forking(threading.local):
    """The worker that this thread is about to fork."""

    process: Any = None  # what multiprocessing holds of it
    mask: Any = None  # the signals that were held back before
    ours = False  # whether it is for the data of a run


_forking = _Forking()
_lasting = 0


def lasting_workers() -> int:
    """How many workers were forked that live on, and drew their seed from the program's generator."""
    return _lasting


def _before_fork() -> None:
    global _lasting
    _forking.process = None
    if all(one.is_closed for one in list(_listening)):
        return
    process, iterator, loader = _worker_in(sys._getframe(1))
    if not _forking.ours and getattr(iterator, "_persistent_workers", False):
        _lasting += getattr(loader, "generator", None) is None
    if process is not None:
        _forking.process, _forking.mask = process, signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        end_at_exit(iterator)


def _after_fork() -> None:
    process, _forking.process = _forking.process, None
    if process is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)  # the child keeps them back for good
        reference = weakref.ref(process)
        process.terminate = lambda: None if (one := reference()) is None else one.kill()


def _worker_in(frame: FrameType) -> tuple[Any, Any, Any]:
    """The worker that this very call is about to fork; the iterator that it is made for and its loader, if any."""
    names = frame.f_locals
    if frame.f_code.co_name != "_launch" or "process_obj" not in names:
        return None, None, None
    run = getattr(names["process_obj"], "_target", None)
    if getattr(run, "__module__", None) not in _MAKE_WORKERS:
        return None, None, None
    caller: FrameType | None = frame
    for _ in range(_NEAR):
        if caller is not None and hasattr(type(maker := caller.f_locals.get("self")), "_shutdown_workers"):
            return names["self"], maker, caller.f_locals.get("loader")
        caller = None if caller is None else caller.f_back
    return names["self"], None, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)
