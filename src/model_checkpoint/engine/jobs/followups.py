"""Follow-ups: what is done for a checkpoint after its save was acknowledged, one after the other, by one quiet thread.

A failure never harms the save. It is logged at once, raised by :func:`finish`, told as a warning by the next save of
the root, and at the end of the program if nobody asked before. The end of the program waits for what is under way.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections import deque
from collections.abc import Callable

from model_checkpoint import forks
from model_checkpoint.engine.common.workers import yield_to_others
from model_checkpoint.engine.jobs import inflight
from model_checkpoint.errors import CheckpointWarning, ProtectionFailed, SaveTimeout

log = logging.getLogger("model_checkpoint.save")


class FollowUp:
    """One piece of work behind a save, and how it ended."""

    def __init__(self, url: str, where: str, work: Callable[[], None]) -> None:
        self.url, self.where, self.work = url, where, work
        self.error: BaseException | None = None
        self.seen = False  # whether somebody has learnt of its failure
        self._over = threading.Event()

    def run(self) -> None:
        """Do it, and keep what goes wrong."""
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001  # kept for whoever asks; the save itself is safe
            self.error = error
            log.error("%s: saved, but what was to follow failed: %s", self.where, error)
            with _ledger.lock:
                _ledger.failed.append(self)
        finally:
            self._over.set()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for its end; raise what went wrong."""
        if not self._over.wait(timeout):
            raise SaveTimeout(
                f"{self.where}: is saved, but its parity or mirror is not made yet. That goes on; ask again.",
                self.where,
            )
        if self.error is not None:
            self.seen = True
            raise self.failure() from self.error

    def over(self) -> None:
        """Wait for its end, good or bad, without taking note of it."""
        self._over.wait()

    def failure(self) -> ProtectionFailed:
        """What went wrong, as an error of ours."""
        return ProtectionFailed(
            f"{self.where}: is saved and whole, but its parity or mirror could not be made: "
            f"{str(self.error).rstrip('.')}. `mckpt repair` makes what is missing.",
            self.where,
            inner_exception=self.error,
        )

    def abandon(self) -> None:
        """In a forked child: it goes on in the parent."""
        self.seen = True
        self._over = threading.Event()
        self._over.set()


class _FollowUps:
    def __init__(self) -> None:
        self.lock = forks.lock()
        self.waiting: deque[FollowUp] = deque()
        self.running: FollowUp | None = None
        self.working = False  # whether the thread lives
        self.failed: list[FollowUp] = []


_ledger = _FollowUps()


def follow_up(url: str, where: str, work: Callable[[], None]) -> FollowUp:
    """Have ``work`` done after all that was asked for before; at the end of the program, at once."""
    one = FollowUp(url, where, work)
    if inflight.is_ending():
        one.run()
        return one
    inflight.watch_exit(_at_exit)
    with _ledger.lock:
        _ledger.waiting.append(one)
        if _ledger.working:
            return one
        _ledger.working = True
    try:
        threading.Thread(target=_work, name="mckpt-follow-up", daemon=True).start()
    except RuntimeError:  # the system has no thread left: then it is done here
        _drain()
    return one


def _work() -> None:
    yield_to_others()
    _drain()


def _drain() -> None:
    while True:
        with _ledger.lock:
            if not _ledger.waiting:
                _ledger.working, _ledger.running = False, None
                return
            one = _ledger.running = _ledger.waiting.popleft()
        one.run()


def _under_way(url: str | None) -> list[FollowUp]:
    with _ledger.lock:
        every = [*([_ledger.running] if _ledger.running is not None else []), *_ledger.waiting]
        return [one for one in every if url in (None, one.url)]


def _take_unseen(url: str | None) -> list[FollowUp]:
    with _ledger.lock:
        lost = [one for one in _ledger.failed if not one.seen and url in (None, one.url)]
        _ledger.failed = [one for one in _ledger.failed if not one.seen and one not in lost]
        return lost


def finish(url: str | None = None) -> None:
    """Wait for the follow-ups of ``url`` (of every root without one), then raise a failure nobody has learnt of.

    Example:
        >>> one = follow_up("memory://doc-follow", "memory://doc-follow/checkpoints/a", lambda: None)
        >>> finish("memory://doc-follow")
    """
    for one in _under_way(url):
        one.over()
    lost = _take_unseen(url)
    if lost:
        raise lost[0].failure() from lost[0].error


def warn_unseen(url: str) -> None:
    """Tell the caller, once, what failed behind earlier saves of ``url``; never waits."""
    for one in _take_unseen(url):
        warnings.warn(CheckpointWarning(str(one.failure())), stacklevel=3)


def _at_exit() -> None:
    """Finish what is under way, unless interrupted; the program ends as it would have, since no checkpoint is lost."""
    try:
        for one in _under_way(None):
            one.over()
    except KeyboardInterrupt:
        log.warning("interrupted at exit: some checkpoints have no parity or mirror yet; `mckpt repair` makes them")
    for one in _take_unseen(None):
        warnings.warn(CheckpointWarning(str(one.failure())), stacklevel=1)


def _start_anew() -> None:
    """In a forked child: what is under way is the parent's."""
    old = [*([_ledger.running] if _ledger.running is not None else []), *_ledger.waiting]
    _ledger.__init__()  # type: ignore[misc]  # the one object every function here holds
    for one in old:
        one.abandon()


forks.in_child(_start_anew)
