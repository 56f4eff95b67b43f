"""In flight: which background saves of this process are under way, and whose failure nobody has learnt of yet.

A failure is raised by the handle, or by the next save of the root, or it ends the process with exit code 1.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Literal

from model_checkpoint import forks
from model_checkpoint.engine.jobs.running_save import Counts, RunningSave, SaveState
from model_checkpoint.errors import BackgroundSaveFailed, OptionInvalid

log = logging.getLogger("model_checkpoint.save")

Busy = Literal["wait", "skip", "queue"]


class _InFlight:
    """All saves under way, by the URL of their root, and those that failed unseen."""

    def __init__(self) -> None:
        self.lock = forks.lock()
        self.running: dict[str, list[RunningSave]] = defaultdict(list)
        self.failed: list[RunningSave] = []
        self.counts: dict[str, Counts] = defaultdict(Counts)
        self.ending = False  # whether the interpreter has finished what was under way, and waits for nobody else


_ledger = _InFlight()
_watching_exit = False
_after_saves: list[Callable[[], None]] = []  # what else the end of the interpreter waits for, once the saves are over


def new_job(url: str, where: str, *, lane: int = 0) -> RunningSave:
    """A save of ``url`` that is not under way yet; ``lane`` is the rank where threads of this process are ranks."""
    with _ledger.lock:
        return RunningSave(where, url, _ledger.counts[url], leave=_leave, lane=lane)


def admit(job: RunningSave, busy: Busy) -> RunningSave | None:
    """Enter a new save; return the one it must queue behind, if any.

    Raises the failure of an earlier save that nobody has learnt of. A save that is to be skipped comes back ended.
    It is made before, so that whoever is interrupted in here can still end it.
    """
    if busy not in ("wait", "skip", "queue"):
        raise OptionInvalid(f"busy must be 'wait', 'skip' or 'queue', got {busy!r}. Nothing was done.")
    watch_exit()
    waited = False
    while True:
        with _ledger.lock:
            _raise_unseen(job.url)
            ahead = [one for one in _ledger.running[job.url] if one.lane == job.lane][-1:]
            counts = job.counts
            if not ahead or busy == "queue":
                _ledger.running[job.url].append(job)
                counts.queued += len(ahead)
                return ahead[0] if ahead else None
            counts.waits += busy == "wait" and not waited
            counts.skips += busy == "skip"
        if busy == "skip":
            job.skip()
            return None
        waited = True
        ahead[0].over()


def is_ending() -> bool:
    """Whether the interpreter is at its end, so that a save begun now must be finished by whoever began it."""
    return _ledger.ending


def _leave(job: RunningSave, end: SaveState) -> None:
    with _ledger.lock:
        if job not in _ledger.running[job.url]:
            return  # it never was under way
        _ledger.running[job.url].remove(job)
        if end is SaveState.FAILED:
            _ledger.failed.append(job)


def raise_unseen(url: str | None = None) -> None:
    """Wait for the saves of ``url`` (of every root without one), then raise a failure nobody has learnt of."""
    while True:
        with _ledger.lock:
            running = _running(url)
            if not running:
                _raise_unseen(url)
                return
        for job in running:
            job.over()


def wait_over(url: str) -> list[RunningSave]:
    """Wait for the saves of ``url``; return those whose failure nobody has learnt of, which stay to be told."""
    while True:
        with _ledger.lock:
            running = _running(url)
            if not running:
                return _unseen(url)
        for job in running:
            job.over()


def _running(url: str | None) -> list[RunningSave]:
    return [job for root, jobs in _ledger.running.items() if url in (None, root) for job in jobs]


def _unseen(url: str | None) -> list[RunningSave]:
    """The failures nobody has learnt of; the lock is held."""
    _ledger.failed = [job for job in _ledger.failed if not job.seen]
    return [job for job in _ledger.failed if url in (None, job.url)]


def _raise_unseen(url: str | None) -> None:
    """Raise the first unseen failure; the lock is held."""
    lost = _unseen(url)
    if not lost:
        return
    error = lost[0].exception()
    raise BackgroundSaveFailed(
        f"{lost[0].where}: the background save failed and nobody had asked for its result: {str(error).rstrip('.')}. "
        "Nothing was done by this call; repeat it to go on without that checkpoint.",
        lost[0].where,
        inner_exception=error,
    ) from error


def watch_exit(then: Callable[[], None] | None = None) -> None:
    """Have the end of the interpreter wait for us, while threads can still be started, and then call ``then``."""
    global _watching_exit
    with _ledger.lock:
        if then is not None and then not in _after_saves:
            _after_saves.append(then)
        if _watching_exit:
            return
        _watching_exit = True
    register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
    register(_at_exit)


def _at_exit() -> None:
    """Finish every save; an interrupt cancels them instead. A failure nobody has learnt of ends the process with 1."""
    with _ledger.lock:
        _ledger.ending = True
        running = [job for jobs in _ledger.running.values() for job in jobs]
    try:
        for job in running:
            job.over()
    except BaseException as error:  # noqa: BLE001  # an interrupt while waiting: end cleanly, and soon
        log.warning("interrupted at exit (%r), cancelling %d saves", error, len(running))
        for job in running:
            job.cancel()
        for job in running:
            job.over()
    for call in _after_saves:
        call()
    lost = [job for job in _ledger.failed if not job.seen]
    if lost:
        threading.Thread(target=_end_process, args=(lost,), name="mckpt-exit").start()


def _end_process(lost: list[RunningSave]) -> None:
    """Report like any uncaught exception, then do what the interpreter would do at its end, but exit with code 1.

    The interpreter has no other way to change its exit code this late. It waits for this thread, so all other
    threads and exit functions have their turn before the process ends.
    """
    for job in lost:
        error = job.exception()
        if error is not None:
            sys.excepthook(type(error), error, error.__traceback__)
    here, main = threading.current_thread(), threading.main_thread()
    for thread in threading.enumerate():
        if thread not in (here, main) and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(1)


def _start_anew() -> None:
    """In a forked child: the saves under way are the parent's."""
    jobs = [job for running in _ledger.running.values() for job in running]
    _ledger.__init__()  # type: ignore[misc]  # the one object every function here holds
    for job in jobs:
        job.abandon()


forks.in_child(_start_anew)
