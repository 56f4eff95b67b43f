"""Choose: which of several checkpoints is newest."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

_STEP_NAME = re.compile(r"step-(\d{8}|[1-9]\d{8,})")  # exactly what step_name makes, and nothing else


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


@dataclass(frozen=True, slots=True)
class SortedNames:
    """The names of a root, as far as they tell what is newest."""

    told: tuple[str, ...]  # names of steps, the lowest first
    silent: tuple[str, ...]  # the rest, which must be read to know


@lru_cache(maxsize=8)  # a root is asked again and again, and seldom changes between
def sort_names(names: tuple[str, ...]) -> SortedNames:
    """Sort names by the steps they tell.

    Example:
        >>> sort_names(("step-100000000", "best", "step-00000002"))
        SortedNames(told=('step-00000002', 'step-100000000'), silent=('best',))
    """
    every = sorted(names)
    told = sorted(filter(_STEP_NAME.fullmatch, every), key=len)  # by number, since equal lengths are in order already
    silent = sorted(set(every).difference(told)) if len(told) < len(every) else ()
    return SortedNames(tuple(told), tuple(silent))


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
    told = list(names.told)
    ripe = [_ByAge(one) for one in read_all(names.silent)]
    heapq.heapify(ripe)
    while told or ripe:
        claim = told_step(told[-1]) if told else None
        if claim is not None and upto is not None and claim > upto:
            told.pop()
        elif claim is not None and (not ripe or claim >= _age(ripe[0].one)[0]):
            found = read(told.pop())
            if found is not None:
                heapq.heappush(ripe, _ByAge(found))
        else:
            yield heapq.heappop(ripe).one


def is_newer(one: Dated, other: Dated) -> bool:
    """Whether ``one`` comes before ``other``: by step, then commit, then name."""
    return _age(other) < _age(one) if _age(one) != _age(other) else one.name < other.name


def _age(one: Dated) -> tuple[int, str]:
    return -1 if one.step is None else one.step, one.created


@dataclass(frozen=True, slots=True)
class _ByAge(Generic[T]):
    """One of a heap whose top is the newest."""

    one: T

    def __lt__(self, other: _ByAge[T]) -> bool:
        return is_newer(self.one, other.one)


def rank_by_age(candidates: Sequence[T]) -> list[T]:
    """Newest first: highest step, then latest commit; those without a step come last."""
    return sorted(candidates, key=_age, reverse=True)
