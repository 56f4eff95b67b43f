"""Cache policies: which activation goes first when room is needed.

A policy belongs to one cache, which calls it under its own lock.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass
from itertools import count
from typing import Protocol, runtime_checkable


@runtime_checkable
class CachePolicy(Protocol):
    """Chooses what leaves a full cache; give a cache your own to change that."""

    def added(self, layer_id: str, size_bytes: int, cost: float) -> None:
        """A layer that was not there came in."""
        ...

    def used(self, layer_id: str) -> None:
        """A layer was found."""
        ...

    def removed(self, layer_id: str) -> None:
        """A layer is gone, evicted or not."""
        ...

    def victim(self) -> str:
        """The layer to evict next; the cache is not empty."""
        ...


class LRUPolicy:
    """The least recently used goes first.

    Example:
        >>> policy = LRUPolicy()
        >>> policy.added("a", 1, 1.0); policy.added("b", 1, 1.0); policy.used("a")
        >>> policy.victim()
        'b'
    """

    def __init__(self) -> None:
        self._order: OrderedDict[str, None] = OrderedDict()

    def added(self, layer_id: str, size_bytes: int, cost: float) -> None:
        """Put it at the young end."""
        self._order[layer_id] = None

    def used(self, layer_id: str) -> None:
        """Move it to the young end."""
        self._order.move_to_end(layer_id)

    def removed(self, layer_id: str) -> None:
        """Forget it."""
        del self._order[layer_id]

    def victim(self) -> str:
        """The old end."""
        return next(iter(self._order))


class LFUPolicy:
    """The least often used goes first; among equals the least recently used.

    Example:
        >>> policy = LFUPolicy()
        >>> policy.added("a", 1, 1.0); policy.added("b", 1, 1.0); policy.used("a"); policy.used("b"); policy.used("a")
        >>> policy.victim()
        'b'
    """

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        self._groups: dict[int, OrderedDict[str, None]] = {}  # number of uses -> layers, oldest first

    def added(self, layer_id: str, size_bytes: int, cost: float) -> None:
        """Start at no use."""
        self._enter(layer_id, 0)

    def used(self, layer_id: str) -> None:
        """Count one more."""
        uses = self._uses[layer_id]
        self.removed(layer_id)
        self._enter(layer_id, uses + 1)

    def _enter(self, layer_id: str, uses: int) -> None:
        self._uses[layer_id] = uses
        self._groups.setdefault(uses, OrderedDict())[layer_id] = None

    def removed(self, layer_id: str) -> None:
        """Forget it."""
        uses = self._uses.pop(layer_id)
        group = self._groups[uses]
        del group[layer_id]
        if not group:
            del self._groups[uses]

    def victim(self) -> str:
        """The oldest of the least used group."""
        # the groups are few (one per distinct number of uses), and evictions rare beside lookups
        return next(iter(self._groups[min(self._groups)]))


@dataclass(slots=True)
class _Valued:
    gain: float  # what one more use adds
    worth: float
    uses: int = 1
    ticket: int = -1  # the heap item that stands for it; others are stale


class CostAwarePolicy:
    """What is cheap to compute again for the bytes it takes goes first (GreedyDual-Size-Frequency).

    A layer's worth is uses x cost / size on top of the worth of the last one evicted, so that what was once
    dear ages too.

    Example:
        >>> policy = CostAwarePolicy()
        >>> policy.added("slow", 100, 9.0); policy.added("fast", 100, 1.0)
        >>> policy.victim()
        'fast'
    """

    def __init__(self) -> None:
        self._age = 0.0
        self._held: dict[str, _Valued] = {}
        self._heap: list[tuple[float, int, str]] = []  # worth when pushed, ticket, layer
        self._tickets = count()

    def added(self, layer_id: str, size_bytes: int, cost: float) -> None:
        """Value it."""
        gain = cost / max(size_bytes, 1)
        self._held[layer_id] = _Valued(gain=gain, worth=self._age + gain)
        self._push(layer_id)

    def used(self, layer_id: str) -> None:
        """Value it higher; the heap learns of it when the layer comes up."""
        held = self._held[layer_id]
        held.uses += 1
        held.worth = self._age + held.uses * held.gain

    def _push(self, layer_id: str) -> None:
        held = self._held[layer_id]
        held.ticket = next(self._tickets)
        heapq.heappush(self._heap, (held.worth, held.ticket, layer_id))

    def removed(self, layer_id: str) -> None:
        """Forget it."""
        del self._held[layer_id]
        if len(self._heap) > 2 * len(self._held) + 64:
            self._heap = [item for item in self._heap if self._stands(item[1], item[2])]
            heapq.heapify(self._heap)

    def _stands(self, ticket: int, layer_id: str) -> bool:
        return layer_id in self._held and self._held[layer_id].ticket == ticket

    def victim(self) -> str:
        """The layer of least worth; its worth becomes the age of the cache."""
        while True:
            worth, ticket, layer_id = self._heap[0]
            if not self._stands(ticket, layer_id):
                heapq.heappop(self._heap)
            elif self._held[layer_id].worth > worth:
                heapq.heappop(self._heap)
                self._push(layer_id)
            else:
                self._age = worth
                return layer_id
