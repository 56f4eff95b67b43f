"""Job: the handle of one background save, and all that its owner may do with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.jobs.running_save import COME_BY, Counts, RunningSave, SaveState


class SaveJob:
    """One background save; ``result()`` returns when it is durable. May be awaited."""

    __slots__ = ("_running",)

    def __init__(self, running: RunningSave) -> None:
        self._running = running

    def __repr__(self) -> str:
        return f"<SaveJob {self.where} {self.state.value}>"

    @property
    def where(self) -> str:
        """Where the checkpoint will lie."""
        return self._running.where

    @property
    def state(self) -> SaveState:
        """How far the save has come."""
        return self._running.state

    @property
    def stall(self) -> float:
        """Seconds the caller was held up: in the call, and before guarded steps."""
        return self._running.stall

    @property
    def counts(self) -> Counts:
        """How often saves of this root had to wait, were skipped or queued."""
        return self._running.counts

    @property
    def seen(self) -> bool:
        """Whether somebody has learnt of its failure."""
        return self._running.seen

    def done(self) -> bool:
        """Whether the save is durable, or will never be."""
        return self._running.done()

    def wait_staged(self, timeout: float | None = None) -> None:
        """Wait until every byte is copied, so that anything may be written to the state; raise if the save failed."""
        self._running.wait_staged(timeout)

    def result(self, timeout: float | None = None) -> CheckpointInfo:
        """Return what was saved once it is durable; raise what went wrong, or ``TimeoutError`` until then."""
        return self._running.result(timeout)

    def wait_protected(self, timeout: float | None = None) -> CheckpointInfo:
        """Like :meth:`result`, once its parity files and mirror are made too; raise what went wrong with those."""
        started = time.monotonic()
        info = self._running.result(timeout)
        if self._running.follow_up is not None:
            left = None if timeout is None else max(0.0, timeout - (time.monotonic() - started))
            self._running.follow_up.wait(left)
        return info

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return what went wrong, or None."""
        return self._running.exception(timeout)

    def at_end(self, call: Callable[[], None]) -> None:
        """Have ``call`` called once the save is over, well or not, by the thread that ends it; at once if it is."""
        self._running.at_end(call)

    def cancel(self) -> bool:
        """Stop the save; False if it is too late, because it is being or has been committed."""
        return self._running.cancel()

    def __await__(self) -> Generator[Any, None, CheckpointInfo]:
        return self._awaited().__await__()

    async def _awaited(self) -> CheckpointInfo:
        import asyncio  # costs more than the rest of this module

        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody is waiting any more
                loop.call_soon_threadsafe(over.set)

        self._running.at_end(wake)
        while (attend := self._running.attend) is not None and not over.is_set():
            attend()  # only this thread may talk, and the loop runs in it
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), COME_BY)
        await over.wait()
        return self.result(0)
