"""Object parallel: a few requests at a time, since each costs a round trip."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

REMOVALS_AT_ONCE = 8
READS_AT_ONCE = 32

A = TypeVar("A")
T = TypeVar("T")


def in_parallel(work: Callable[[str], None], keys: Iterable[str]) -> None:
    """Run small requests a few at a time; raise the first failure, after all have ended."""
    todo = list(keys)
    if len(todo) < 2:
        for key in todo:
            work(key)
        return
    with ThreadPoolExecutor(min(REMOVALS_AT_ONCE, len(todo)), thread_name_prefix="mckpt-objects") as pool:
        for done in [pool.submit(work, key) for key in todo]:
            done.result()


def map_in_order(work: Callable[[A], T], items: Iterable[A], *, at_once: int = READS_AT_ONCE) -> Iterator[T]:
    """What ``work`` makes of each item, in order; no more than twice ``at_once`` results wait in memory.

    Example:
        >>> list(map_in_order(abs, [-3, -2, -1], at_once=2))
        [3, 2, 1]
    """
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="mckpt-objects")
    waiting: deque[Future[T]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= 2 * at_once:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
