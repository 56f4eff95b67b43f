"""Choose: which of several checkpoints is newest."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import methodcaller
from typing import Generic, Protocol, TypeVar

import msgspec

_STEP_NAME = re.compile(r"step-(\d{8}|[1-9]\d{8,})")  # exactly what step_name makes, and nothing else
_PLAIN_CHARS = len("step-00000000")
_LAST = -2  # below every step, and below those without one


# what trainers call the folders and files of their steps: step-100, global_step100, checkpoint-500, iter_0000007
_STEP_WORDS = re.compile(r"(?:global[-_]?)?(?:step|iter|iteration|checkpoint|ckpt)[-_=]?(\d{1,18})", re.IGNORECASE)


class Dated(Protocol):
    """Anything with a step and a commit time."""

    @property
    def name(self) -> str:
        """The folder it lies in."""
        ...

    @property
    def step(self) -> int | None:
        """Training step, if it has one."""
        ...

    @property
    def created(self) -> str:
        """Commit time, ISO 8601 in UTC, so that text order is time order."""
        ...


T = TypeVar("T", bound=Dated)


def step_name(step: int) -> str:
    """The folder of a step.

    Example:
        >>> step_name(100)
        'step-00000100'
    """
    return f"step-{step:08d}"


def told_step(name: str) -> int | None:
    """The step that a folder's name tells, if it is one that :func:`step_name` makes.

    Example:
        >>> told_step("step-00000100"), told_step("step-100"), told_step("best")
        (100, None, None)
    """
    match = _STEP_NAME.fullmatch(name)
    return int(match[1]) if match else None


def trainer_step(name: str) -> int | None:
    """The step in the name that some trainer has given a checkpoint; None if it is none that trainers give.

    Example:
        >>> trainer_step("checkpoint-500"), trainer_step("global_step20"), trainer_step("v2")
        (500, 20, None)
    """
    match = _STEP_WORDS.fullmatch(name)
    return int(match[1]) if match else None


class SortedNames(msgspec.Struct, frozen=True):
    """The names of a root, as far as they tell what is newest."""

    newest: str | None  # the one of the highest step
    told: tuple[str, ...]  # names of steps, in no order
    silent: tuple[str, ...]  # the rest, which must be read to know

    def falling(self) -> Iterator[str]:
        """The names of steps, the highest first; they are put in order only if a second is asked for."""
        if self.newest is not None:
            yield self.newest
        yield from sorted(self.told, key=_by_number, reverse=True)[1:]


@lru_cache(maxsize=8)  # a root is asked again and again, and seldom changes between
def sort_names(names: tuple[str, ...]) -> SortedNames:
    """Tell the names of steps from the rest, and which of them is newest.

    Example:
        >>> sort_names(("step-00000002", "best", "step-100000000"))
        SortedNames(newest='step-100000000', told=('step-00000002', 'step-100000000'), silent=('best',))
    """
    told = names if _are_plain(names) else _told(names)
    silent = {*names}.difference(told) if len(told) < len(names) else ()
    return SortedNames(_highest(told), told, tuple(sorted(silent)))


def _are_plain(names: tuple[str, ...]) -> bool:
    """Whether all are names of steps of eight digits, whose order is that of their texts: asked of all at once.

    No name has a slash in it, so what is left of them has none exactly if each begins as it should.
    """
    left = ("/" + "/".join(names)).replace("/step-", "")
    return {*map(len, names)} == {_PLAIN_CHARS} and left.isascii() and left.isdigit()


def _told(names: tuple[str, ...]) -> tuple[str, ...]:
    begun = tuple(filter(methodcaller("startswith", "step-"), names))
    return begun if _are_plain(begun) else tuple(filter(_STEP_NAME.fullmatch, begun))


def _highest(told: tuple[str, ...]) -> str | None:
    longest = max(map(len, told), default=0)
    return max(told if longest == _PLAIN_CHARS else (name for name in told if len(name) == longest), default=None)


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


def newest_first(
    names: SortedNames,
    *,
    read: Callable[[str], T | None],
    read_all: Callable[[Sequence[str]], Iterable[T]],
    upto: int | None = None,
) -> Iterator[T]:
    """Yield checkpoints, newest first, and read of the names that tell a step only those that are asked for.

    A name is a claim: what turns out to have a lower step takes its place there. ``upto`` leaves names of higher steps
    alone.
    """
    ripe = [_ByAge(one) for one in read_all(names.silent)]
    heapq.heapify(ripe)
    told, claimed = names.falling(), math.inf  # no name that is left claims more
    waiting: str | None = None
    while True:
        if ripe and _age(ripe[0].one)[0] > claimed:
            yield heapq.heappop(ripe).one
        elif waiting is not None:
            found, waiting, claimed = read(waiting), None, claimed - 1
            if found is not None:
                heapq.heappush(ripe, _ByAge(found))
        else:
            waiting = next(told, None)
            if waiting is None and not ripe:
                return
            claimed = _LAST if waiting is None else told_step(waiting) or 0
            if upto is not None and claimed > upto:
                waiting = None


def is_newer(one: Dated, other: Dated) -> bool:
    """Whether ``one`` comes before ``other``: by step, then commit, then name."""
    return _age(other) < _age(one) if _age(one) != _age(other) else one.name < other.name


def _age(one: Dated) -> tuple[int, str]:
    return -1 if one.step is None else one.step, one.created


class _ByAge(msgspec.Struct, Generic[T], frozen=True):
    """One of a heap whose top is the newest."""

    one: T

    def __lt__(self, other: _ByAge[T]) -> bool:
        return is_newer(self.one, other.one)


def rank_by_age(candidates: Sequence[T]) -> list[T]:
    """Newest first: highest step, then latest commit; those without a step come last."""
    return sorted(candidates, key=_age, reverse=True)
