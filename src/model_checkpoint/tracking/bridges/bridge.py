"""Bridge: the way to one other tracker; it never holds up a training.

Metrics wait in a bounded queue of their own, and one thread carries them over. While the other tracker fails it is told
once and tried again after 1, 2, 4, ... at most 30 seconds; meanwhile they wait, and when the queue is full they are
dropped and counted. The catalog has all of them in any case.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from model_checkpoint.database.records import Experiment
from model_checkpoint.errors import CheckpointWarning
from model_checkpoint.tracking.bridges.other_tracker import OtherTracker
from model_checkpoint.tracking.errors import FlushTimeout
from model_checkpoint.tracking.metric_queue import Logged, MetricQueue

log = logging.getLogger("model_checkpoint.tracking")

CAPACITY = 100_000  # points; some 12 MB
_GATHER_SECONDS = 1.0  # a rare large batch costs other trackers a fraction of many small ones
_LOOK_SECONDS = 1.0
_CALLS = 100  # carried over in one piece
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeTally:
    """Where the points handed to a bridge are; truthy if the other tracker has taken all of them.

    Example:
        >>> bool(BridgeTally(sent=20)), bool(BridgeTally(sent=20, dropped=1))
        (True, False)
    """

    sent: int = 0  # taken by the other tracker
    waiting: int = 0  # until it is back, or has time
    refused: int = 0  # it will never take them
    dropped: int = 0  # the queue was full

    def __bool__(self) -> bool:
        return not (self.waiting or self.refused or self.dropped)


class Bridge:
    """Metrics of one run on their way to one other tracker.

    A bridge is of the process that made it: what a forked child logs goes to the catalog alone.

    Args:
        other: The tracker, which need not answer.
        run: What it is told of the run.
        patience: Seconds for which the end of the run waits for it, in all.
        capacity: Most points that wait.
    """

    def __init__(
        self, other: OtherTracker, run: Experiment, *, patience: float = 10.0, capacity: int = CAPACITY
    ) -> None:
        self._other, self._run, self._patience, self._capacity = other, run, patience, capacity
        self._pid = os.getpid()
        self._held: list[Logged] = []  # taken from the queue, not yet from us
        self._described: Experiment | None = None
        self._begun = self._ending = self._ended = False
        self._away = self._told = False
        self._pause, self._next_try = _FIRST_PAUSE, 0.0
        self._taken = self._sent = self._refused = self._dropped = 0
        self._queue = MetricQueue(
            self._deliver,
            idle_seconds=_LOOK_SECONDS,
            gather_seconds=_GATHER_SECONDS,
            capacity=capacity,
            when_full="drop",
        )
        self._queue.start()

    def __repr__(self) -> str:
        return f"<Bridge to {self._other.name}: {self.tally()}>"

    # --- what the tracker says ---------------------------------------------------------------------------------------

    def put(self, calls: Sequence[Logged]) -> None:
        """Take metrics along; returns at once."""
        if os.getpid() != self._pid:
            return
        for one in calls:
            if one.values:  # a step at which nothing was logged is none of another tracker's
                self._taken += len(one.values)
                self._queue.put(one)

    def tell(self, run: Experiment) -> None:
        """Take along what is now known of the run."""
        self._run = run

    def tally(self) -> BridgeTally:
        """Where the points are."""
        dropped = self._dropped + self._queue.dropped
        waiting = self._taken - self._sent - self._refused - dropped
        return BridgeTally(sent=self._sent, waiting=waiting, refused=self._refused, dropped=dropped)

    def flush(self, timeout: float | None = None) -> BridgeTally:
        """Wait until everything so far was tried, and tell where it is; a tracker that was away is tried at once.

        Raises:
            FlushTimeout: Not within ``timeout`` seconds; it goes on.
        """
        self._queue.flush(timeout)
        return self.tally()

    def hurry(self) -> None:
        """Bring on what waits, as long as there is patience left."""
        began = time.monotonic()
        try:
            self._queue.flush(max(0.0, self._patience))
        except FlushTimeout:
            log.warning("%s is slow: %s; no longer waited for", self._other.name, self.tally())
        self._patience -= time.monotonic() - began

    def close(self, run: Experiment) -> None:
        """Bring on what waits, say how the run ended, and warn of what did not arrive."""
        if os.getpid() != self._pid:
            return
        self._run = run
        self.hurry()
        self._ending = True
        self.hurry()
        with suppress(FlushTimeout):  # its thread goes on for as long as the program does
            self._queue.close(max(0.0, self._patience))
        if not (tally := self.tally()):
            warnings.warn(
                CheckpointWarning(
                    f"run {run.id}: of its metrics {tally.waiting} points wait for {self._other.name}, {tally.refused} "
                    f"are refused by it, {tally.dropped} were dropped. The catalog has them all.",
                    report=tally,
                ),
                stacklevel=4,
            )

    # --- in the thread of the queue ----------------------------------------------------------------------------------

    def _deliver(self, batch: Sequence[Logged], urgent: bool) -> None:
        self._hold(batch)
        if self._ended or (not urgent and time.monotonic() < self._next_try):
            return
        try:
            self._carry_over()
        except Exception as error:  # noqa: BLE001  # whatever another tracker raises, the training goes on
            self._depart(error)
        else:
            self._away, self._next_try = False, 0.0

    def _hold(self, batch: Sequence[Logged]) -> None:
        """Keep what is to be carried over, unless too much waits already."""
        points = sum(len(one.values) for one in self._held)
        for one in batch:
            if points >= self._capacity:
                self._dropped += len(one.values)
            else:
                self._held.append(one)
                points += len(one.values)

    def _carry_over(self) -> None:
        if not self._begun:
            self._other.begin(self._run)
            self._begun = True
        if not _says_the_same(self._run, self._described):
            self._describe(self._run)
        while self._held:
            some = list(islice(self._held, _CALLS))
            refused = self._other.log(some)
            del self._held[: len(some)]
            if refused and not self._refused:
                log.warning(
                    "%s does not take %s; the catalog has it", self._other.name, ", ".join(sorted(set(refused)))
                )
            self._refused += len(refused)
            self._sent += sum(len(one.values) for one in some) - len(refused)
        if self._ending:
            self._other.end(self._run)
            self._ended = True

    def _describe(self, run: Experiment) -> None:
        """Settings it does not take are told of, and never keep metrics waiting."""
        self._described = run
        try:
            self._other.describe(run)
        except Exception as error:  # noqa: BLE001  # as above
            log.warning("%s does not take what is said of the run: %s", self._other.name, error)

    def _depart(self, error: Exception) -> None:
        if not self._told:  # once for a run, however often it comes and goes
            log.warning(
                "%s fails, so metrics wait for it (%d points at most) or go to the catalog alone; training goes on: %s",
                *(self._other.name, self._capacity, error),
            )
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) if self._away else _FIRST_PAUSE
        self._away, self._told, self._next_try = True, True, time.monotonic() + self._pause


def _says_the_same(run: Experiment, before: Experiment | None) -> bool:
    return before is not None and (run.config, run.tags, run.notes) == (before.config, before.tags, before.notes)
