"""Parallel checkpoints: the same work on many items in a few threads, each failure kept apart from the others.

Items are taken from their source only as fast as they are done, so that it may be endless or larger than memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.performance.available_cores import cores

Item = TypeVar("Item")
Value = TypeVar("Value")

_AHEAD = 2  # items per thread that are taken before the first of them is done


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelOutcome(Generic[Item, Value]):
    """What became of one item: its value, or the error that it met."""

    item: Item
    value: Value | None = None
    error: Exception | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return self.error is None


class ParallelCheckpointProcessor:
    """Works on many checkpoints, files or rows at once, in ``max_workers`` threads (as many as there are cores).

    Example:
        >>> worker = ParallelCheckpointProcessor(max_workers=2)
        >>> [outcome.value for outcome in worker.process([1, 2, 3], lambda n: n * n)]
        [1, 4, 9]
        >>> [outcome.ok for outcome in worker.process([1, 0], lambda n: 1 / n)]
        [True, False]
    """

    def __init__(self, max_workers: int | None = None) -> None:
        if max_workers is not None and max_workers < 1:
            raise OptionInvalid(f"parallel processor: max_workers is {max_workers}, expected 1 or more.")
        self.max_workers = max_workers or cores()

    def process(
        self,
        items: Iterable[Item],
        work: Callable[[Item], Value],
        *,
        progress: Callable[[int], object] | None = None,
        cancel: threading.Event | None = None,
    ) -> list[ParallelOutcome[Item, Value]]:
        """Do ``work`` on each item; the outcomes in the order of ``items``, those after a ``cancel`` left out.

        ``progress`` is called with how many are done, in the thread of the caller.
        """
        outcomes: list[ParallelOutcome[Item, Value]] = []
        for outcome in self.stream(items, work, cancel=cancel):
            outcomes.append(outcome)
            if progress is not None:
                progress(len(outcomes))
        return outcomes

    def stream(
        self, items: Iterable[Item], work: Callable[[Item], Value], *, cancel: threading.Event | None = None
    ) -> Iterator[ParallelOutcome[Item, Value]]:
        """Like :meth:`process`, one outcome after the other; whoever stops asking stops the work.

        Example:
            >>> import itertools
            >>> squares = ParallelCheckpointProcessor(2).stream(itertools.count(), lambda n: n * n)
            >>> [outcome.value for outcome in itertools.islice(squares, 3)]
            [0, 1, 4]
        """
        waiting: deque[Future[ParallelOutcome[Item, Value]]] = deque()
        with ThreadPoolExecutor(self.max_workers, thread_name_prefix="mckpt-parallel") as pool:
            try:
                for item in items:
                    if cancel is not None and cancel.is_set():
                        break
                    waiting.append(pool.submit(_outcome, work, item))
                    if len(waiting) >= _AHEAD * self.max_workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def _outcome(work: Callable[[Item], Value], item: Item) -> ParallelOutcome[Item, Value]:
    start = time.perf_counter()
    try:
        value = work(item)
    except Exception as error:  # noqa: BLE001  # told in the outcome, so that the other items are still done
        return ParallelOutcome(item=item, error=error, seconds=time.perf_counter() - start)
    return ParallelOutcome(item=item, value=value, seconds=time.perf_counter() - start)
