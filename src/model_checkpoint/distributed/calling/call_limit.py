"""Call limit: how long one call may take, and whether somebody has cancelled or left it.

Whatever others can see of a call, a checkpoint that appears or a live object that changes, comes to be within
:meth:`CallLimit.passing`. Once the time is over nobody enters there any more, so that a call which was left behind and
goes on later changes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from model_checkpoint import forks
from model_checkpoint.distributed.errors import CallCancelled, CallTimeout
from model_checkpoint.engine.ranks.error_records import changed_here
from model_checkpoint.errors import CheckpointException, DurabilityUnknown, PartlyLoaded
from model_checkpoint.events import Progress

Outcome = Callable[[], dict[str, Any] | None]
Settle = Callable[[], bool]
Touched = Callable[[], tuple[Sequence[str], Sequence[str]]]

_ADVICE = "Look for the rank or the disk that is slow, or give it a longer timeout."


class CallLimit:
    """The end of one call, set when it begins.

    ``where`` is the checkpoint it is about, ``aftermath`` what a caller must know of one that hangs, ``doubt`` what of
    one where nobody can tell what it came to.

    Example:
        >>> limit = CallLimit("the save", seconds=60)
        >>> limit.check()
        >>> limit.seconds, 59 < limit.left <= 60
        (60, True)
    """

    def __init__(
        self,
        what: str,
        *,
        seconds: float,
        cancel: threading.Event | None = None,
        where: str = "",
        aftermath: str = "",
        doubt: str = "",
        world_size: int = 1,
    ) -> None:
        self.what, self.seconds, self._cancel, self._where = what, seconds, cancel, where
        self._aftermath, self._doubt, self._world_size = aftermath, doubt, world_size
        self.end = time.monotonic() + seconds
        self._interrupt: BaseException | None = None
        self._moved, self._inside, self._unsure = forks.condition(), 0, 0
        self._touched: Touched | None = None  # what a load has changed, once the ranks have begun to
        self._settle: Settle | None = None  # how a save, once it is complete, or a deletion is ended for good
        self._outcome: Outcome = lambda: None  # how the call has ended, by what other ranks have said
        self._awaited: Sequence[int] = ()  # the ranks whose words are waited for right now
        self.gated = self._passed = False  # whether it is published in passing, and whether somebody has passed

    @property
    def left(self) -> float:
        """Seconds until it ends, 0 if it has."""
        return max(0.0, self.end - time.monotonic())

    def check(self) -> None:
        """Raise if the time is over or the call was cancelled."""
        self.check_cancel()
        if time.monotonic() > self.end:
            raise CallTimeout(f"{self.what} took longer than {self.seconds:g} s. {_ADVICE}", self._where)

    def check_cancel(self) -> None:
        """Raise if the call was interrupted or cancelled."""
        self.check_interrupt()
        if self._cancel is not None and self._cancel.is_set():
            raise CallCancelled(f"{self.what} was cancelled. Make the call again to have it done.", self._where)

    def hear(self, event: Progress) -> None:
        """Look at the clock as bytes move; what is raised here ends the operation."""
        self.check()

    def interrupt(self, error: BaseException) -> None:
        """Whoever waited for the call was interrupted, so the call is, wherever it looks next."""
        self._interrupt = error

    def check_interrupt(self) -> None:
        """Raise what interrupted whoever waited for the call."""
        if self._interrupt is not None:
            raise type(self._interrupt)(*self._interrupt.args)

    @contextmanager
    def passing(self, settled: bool = True) -> Iterator[None]:
        """Around whatever others can see; raises if the call is over.

        Whether a put that does not come back will arrive, ``settle`` decides, unless it is not ``settled``.
        """
        with self._moved:
            self.check()
            self._passed = True
            self._inside, self._unsure = self._inside + 1, self._unsure + (not settled)
        try:
            yield
        finally:
            with self._moved:
                self._inside, self._unsure = self._inside - 1, self._unsure - (not settled)
                self._moved.notify_all()

    @contextmanager
    def changing(self, touched: Touched) -> Iterator[None]:
        """Around each change of live objects; ``touched`` names those that were changed so far."""
        self._touched = touched
        with self.passing():
            yield

    def deciding(self, settle: Settle) -> None:
        """From here on only ``settle`` can tell what becomes of a save, or of a deletion."""
        self.check()
        self._settle = settle

    @contextmanager
    def waiting_for(self, ranks: Sequence[int]) -> Iterator[None]:
        """While words of others are waited for: if they never come, it is for them that the call hangs."""
        self._awaited = ranks
        yield
        self._awaited = ()

    def conversing(self, outcome: Outcome) -> None:
        """From here on ``outcome`` tells what other ranks say became of the call, if they have said it."""
        self._outcome = outcome

    def outcome(self) -> dict[str, Any] | None:
        """What other ranks say became of a call that was left; they may have given this rank up long before."""
        return self._outcome()

    def settle(self, rank: int) -> Settle | None:
        """What ends a save or deletion that was left, and tells whether it took place; None if it cannot have.

        Rank 0 does it in passing, so that it knows if it has not; the others know only that they have voted.
        """
        return None if rank == 0 and self.gated and not self._passed else self._settle

    def leave(self, seconds: float) -> None:
        """Wait for whoever is passing; the time must be over, so that nobody follows them."""
        with self._moved:
            self._moved.wait_for(lambda: self._inside == 0, seconds)

    @property
    def is_unsure(self) -> bool:
        """Whether something is still passing of which nobody can tell what will become of it."""
        return self._unsure > 0

    def late(self, ranks: Sequence[int]) -> CallTimeout:
        """The error for a call in which ``ranks`` did not come so far in time."""
        who = ", ".join(map(str, ranks[:16])) + (", ..." if len(ranks) > 16 else "")
        error = CallTimeout(
            f"{self.what} took longer than {self.seconds:g} s: rank {who} of {self._world_size} had not come so far by "
            f"then. {_ADVICE}",
            self._where,
        )
        error.ranks = tuple(ranks)
        return error

    def hung(self, rank: int) -> CallTimeout:
        """The error for a call that does not even come back to say that its time is over.

        What waits for rank 0 may hang in a store that has stopped with it.
        """
        if rank and self._awaited:
            return self.late(self._awaited)
        replaced, partial = ((), ()) if self._touched is None else self._touched()
        aftermath = "It changes nothing any more." if replaced or partial else self._aftermath
        error = CallTimeout(
            f"{self._hangs(rank)} {aftermath} Look for the rank or the disk that does not answer.", self._where
        )
        error.ranks = (rank,)
        return error

    def unsettled(self, failure: Exception) -> DurabilityUnknown:
        """The error for a call that hangs at its end, where neither its storage nor any rank tells what became of it.

        It is the same on every rank that cannot know: rank 0 alone publishes, and deletes.
        """
        error = DurabilityUnknown(
            f"{self._hangs(0)} {self._doubt}",
            self._where,
            inner_exception=failure,
        )
        error.ranks = (0,)  # type: ignore[attr-defined]
        return error

    def _hangs(self, rank: int) -> str:
        of_many = f" on rank {rank} of {self._world_size}" if self._world_size > 1 else ""
        return (
            f"{self.what} took longer than {self.seconds:g} s and hangs{of_many}, in its storage or behind an earlier "
            "call. It is left behind."
        )

    def told(self, error: CheckpointException) -> CheckpointException:
        """What this rank raises of an error: a late rank 0 as what it is told as; what has changed here is named."""
        error = getattr(error, "told_as", error)
        replaced, partial = ((), ()) if self._touched is None else self._touched()
        if isinstance(error, PartlyLoaded) or not (replaced or partial):
            return error
        error.checkpoint_path = error.checkpoint_path or self._where
        return changed_here(error, replaced, partial)
