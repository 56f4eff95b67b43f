"""Running save: how far one background save has come, told by the threads that carry it out to all who wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn, Protocol

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.errors import SaveAbandoned, SaveCancelled, SaveSkipped, SaveTimeout, StateChanged


class SaveState(Enum):
    """How far a background save has come; the last four are ends."""

    STAGING = "staging"  # being copied; the state must not change, unless it is guarded
    STAGED = "staged"  # copied: the state may change
    WRITTEN = "written"  # every byte is on the medium, the checkpoint is being published
    DURABLE = "durable"  # committed: survives power loss
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


COME_BY = 0.005  # seconds between two looks at what threads want to say
_RANK = {state: rank for rank, state in enumerate(SaveState)}
_ENDS = (SaveState.DURABLE, SaveState.FAILED, SaveState.CANCELLED, SaveState.SKIPPED)


@dataclass(slots=True)
class Counts:
    """How often a save of one root met another in flight, and what became of it."""

    waits: int = 0
    skips: int = 0
    queued: int = 0


class Waitable(Protocol):
    """Something that comes to an end."""

    def wait(self, timeout: float | None = None) -> None:
        """Wait for it; raise what went wrong."""
        ...


class RunningSave:
    """One background save as the engine sees it; users hold a :class:`SaveJob` of it."""

    def __init__(
        self,
        where: str,
        url: str,
        counts: Counts,
        *,
        leave: Callable[[RunningSave, SaveState], None] | None = None,
        lane: int = 0,
    ) -> None:
        self.where, self.url, self.counts, self.lane = where, url, counts, lane
        self.seen = False  # whether somebody has learnt of its failure
        self.follow_up: Waitable | None = None  # what is done for it once it is durable
        self.attend: Callable[[], None] | None = None  # carries the words of its threads, if they may not talk
        self.stall = 0.0  # seconds the caller was held up: in the call, and before guarded steps
        self._state = SaveState.STAGING
        self._changed = threading.Condition()
        self._info: CheckpointInfo | None = None
        self._error: BaseException | None = None
        self._at_end: list[Callable[[], None]] = []
        self._stop: Callable[[BaseException], None] | None = None
        self._settle: Callable[[], None] | None = None
        self._leave = leave
        self._committing = self._ended = False

    @property
    def state(self) -> SaveState:
        """How far the save has come."""
        return self._state

    def done(self) -> bool:
        """Whether the save is durable, or will never be."""
        return self._state in _ENDS

    def wait_staged(self, timeout: float | None = None) -> None:
        """Wait until every byte is copied, so that anything may be written to the state; raise if the save failed."""
        self._wait(lambda: self._state is not SaveState.STAGING, timeout, "staged")
        if self._error is not None:
            self._raise()
        if self._settle is not None:
            try:
                self._settle()
            except StateChanged:
                self.seen = True  # told right here; the end follows
                raise

    def result(self, timeout: float | None = None) -> CheckpointInfo:
        """Return what was saved once it is durable; raise what went wrong, or ``TimeoutError`` until then."""
        self._wait(self.done, timeout, "durable")
        if self._info is None:
            self._raise()
        return self._info

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return what went wrong, or None."""
        self._wait(self.done, timeout, "over")
        self.seen = True
        return self._error

    def cancel(self) -> bool:
        """Stop the save; False if it is too late, because it is being or has been committed."""
        with self._changed:
            if self._committing or self.done():
                return self._state is SaveState.CANCELLED
            error = SaveCancelled(f"{self.where}: the save was cancelled; nothing of it is visible.", self.where)
            self._error = self._error or error
        if self._stop is not None:
            self._stop(error)
        return True

    def _wait(self, reached: Callable[[], bool], timeout: float | None, what: str) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        attend = self.attend
        while True:
            with self._changed:
                if reached():
                    break
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise SaveTimeout(
                        f"{self.where}: not {what} after {timeout} s, it is {self._state.value}. The save goes on; "
                        "ask again, or cancel() it.",
                        self.where,
                    )
                self._changed.wait(left if attend is None else COME_BY)
            if attend is not None:
                attend()
        if attend is not None:
            attend()  # the last word may be the verdict that others wait for

    def _raise(self) -> NoReturn:
        self.seen = True
        if self._error is None:
            raise AssertionError("a save that is over has a result or an error")
        raise self._error

    def on_cancel(self, stop: Callable[[BaseException], None]) -> None:
        """Name what brings the threads of this save to a halt."""
        self._stop = stop

    def on_staged(self, settle: Callable[[], None]) -> None:
        """Name what must be looked at before anybody who waited for the copy goes on."""
        self._settle = settle

    def at_end(self, call: Callable[[], None]) -> None:
        """Have ``call`` called at the end of the save, at once if that was before."""
        with self._changed:
            if not self.done():
                self._at_end.append(call)
                return
        call()

    def copied(self) -> bool:
        """Wait until nothing more is copied, whether the save goes on or not; never raises."""
        self._wait(lambda: self._state is not SaveState.STAGING, None, "staged")
        return self._error is None

    def over(self) -> None:
        """Wait for the end, good or bad, without taking note of it."""
        self._wait(self.done, None, "over")

    def failure(self) -> BaseException | None:
        """What went wrong so far, without taking note of it."""
        return self._error

    def staged(self) -> None:
        """Note that every byte is copied."""
        self._advance(SaveState.STAGED)

    def copy_failed(self, error: BaseException) -> None:
        """Note that nothing more is copied, so that nobody waits for it; the end follows."""
        self._error = self._error or error
        self._advance(SaveState.STAGED)

    def begin_commit(self) -> None:
        """Note that every byte is on the medium; from here on the save cannot be cancelled."""
        with self._changed:
            if self._error is not None:
                raise self._error
            self._committing = True
        self._advance(SaveState.WRITTEN)

    def succeed(self, info: CheckpointInfo) -> None:
        """End well."""
        self._info = info
        self._end(SaveState.DURABLE)

    def fail(self, error: BaseException) -> None:
        """End without a checkpoint."""
        self._error = self._error or error
        self._end(SaveState.CANCELLED if isinstance(self._error, SaveCancelled) else SaveState.FAILED)

    def skip(self) -> None:
        """End before anything was done."""
        self._error = SaveSkipped(
            f"{self.where}: not saved, another save of this root was in flight. Pass busy='wait' or busy='queue', or "
            "save less often.",
            self.where,
        )
        self._end(SaveState.SKIPPED)

    def abandon(self) -> None:
        """End in a forked child: the save goes on in the parent."""
        self._changed = threading.Condition()  # the lock of the old one may be held by a thread that is not here
        self.seen, self._at_end, self._leave, self._ended = True, [], None, False
        self.fail(
            SaveAbandoned(
                f"{self.where}: this save belongs to the process that started it. Ask there, or save again here.",
                self.where,
            )
        )

    def _end(self, state: SaveState) -> None:
        """Reach an end, once: an interrupted start may leave two who believe that they must tell of it."""
        with self._changed:
            if self._ended:
                return
            self._ended = True
        if self._leave is not None:
            self._leave(self, state)  # before anybody can see the end and begin the next save
        with self._changed:
            self._advance_locked(state)
            calls, self._at_end = self._at_end, []
        for call in calls:
            call()

    def _advance(self, state: SaveState) -> None:
        with self._changed:
            self._advance_locked(state)

    def _advance_locked(self, state: SaveState) -> None:
        if _RANK[state] > _RANK[self._state]:
            self._state = state
            self._changed.notify_all()
