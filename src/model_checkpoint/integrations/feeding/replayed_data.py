"""Replayed data: data that knows no place is read again up to it.

It is read under generators of its own, so that a second reading draws what the first drew, whatever the training drew
in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

from model_checkpoint.integrations.feeding.generators.global_generators import set_generators, take_generators
from model_checkpoint.integrations.feeding.generators.held_generators import (
    MADE_LATE,
    doubts_about,
    own_generators,
)
from model_checkpoint.integrations.feeding.generators.seeding import mix, seed_all
from model_checkpoint.integrations.feeding.kept_numbers import named_content, numbers_of


class Isolated(Iterator[Any]):
    """An iterator whose draws are apart from all others.

    Example:
        >>> import random
        >>> def noisy():
        ...     while True: yield random.random()
        >>> first, second = (Isolated(noisy(), seed=3, owner=None) for _ in range(2))
        >>> next(first) == next(second)
        True
    """

    def __init__(self, inner: Iterator[Any], *, seed: int, owner: Any) -> None:
        self._inner, outer = inner, take_generators()
        seed_all(seed, owner)
        self._own = take_generators()
        set_generators(outer)

    def __next__(self) -> Any:
        outer = take_generators()
        set_generators(self._own)
        try:
            return next(self._inner)
        finally:
            self._own = take_generators()
            set_generators(outer)

    def skip(self, count: int) -> Self:
        """Read so many and forget them."""
        outer = take_generators()
        set_generators(self._own)
        try:
            for _ in range(count):
                next(self._inner)
        finally:
            self._own = take_generators()
            set_generators(outer)
        return self


class Apart(Iterator[Any]):
    """An iterator that leaves the program's generators as they were, whatever it draws or seeds.

    Example:
        >>> import random
        >>> def seeding():
        ...     while True: random.seed(5); yield random.random()
        >>> before = random.getstate()
        >>> _ = next(Apart(seeding()))
        >>> random.getstate() == before
        True
    """

    def __init__(self, inner: Iterator[Any]) -> None:
        self._inner = inner

    def __next__(self) -> Any:
        outer = take_generators()
        try:
            return next(self._inner)
        finally:
            set_generators(outer)


class ReplayedData:
    """Any iterable that is begun anew for each epoch; its generators are seeded by the number of the epoch.

    Example:
        >>> list(ReplayedData(range(4)).open(epoch=0, skip=2, base=0))
        [2, 3]
    """

    generators: tuple[Any, ...] = ()
    order = 0

    def __init__(self, data: Iterable[Any]) -> None:
        self._data = data
        self._is_there = isinstance(data, (list, tuple, range))  # nothing makes it as it is read
        self._content = named_content(data)  # as it is before it is read
        self._made = 0 if self._is_there else len(own_generators(data))
        self._doubts = () if self._is_there else doubts_about(data)

    @property
    def notes(self) -> tuple[str, ...]:
        """Whoever has no indices must be read again."""
        return () if self._is_there else ("the data has no state: the epoch is read again up to the place",)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Generators that were not found, or not in time."""
        if self._is_there or len(own_generators(self._data)) <= self._made:
            return self._doubts
        return (*self._doubts, MADE_LATE)

    @property
    def numbers(self) -> dict[str, Any]:
        """What the data counts and holds."""
        return self._content if self._is_there else numbers_of(self._data) | self._content

    def draw_base(self) -> int:
        """Nothing is drawn for it."""
        return 0

    def recall_base(self, base: int) -> None:
        """Nothing was drawn for it."""

    def open(self, *, epoch: int, skip: int, base: int) -> Iterator[Any]:
        """Batches from ``skip`` on."""
        if isinstance(self._data, (list, tuple, range)):
            return iter(self._data[skip:])
        return Isolated(iter(self._data), seed=mix(base, epoch), owner=self._data).skip(skip)

    def consumed(self) -> None:
        """Nothing is counted."""

    def close(self) -> None:
        """Nothing is kept open."""

    def place(self) -> None:
        """It knows none."""

    def go_to(self, place: Any) -> None:
        """The number of batches says it all."""
