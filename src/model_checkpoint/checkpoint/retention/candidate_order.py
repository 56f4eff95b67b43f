"""Lineup: the checkpoints of a root in order, and what a keeper says of each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable

from model_checkpoint.checkpoint.retention.candidates import Candidate
from model_checkpoint.plan import rank_by_age


class Claim(NamedTuple):
    """Whether a keeper claims a checkpoint, and why, or why not."""

    keep: bool
    why: str


Claims = Mapping[str, Claim]  # by the name of the checkpoint


@dataclass(frozen=True, slots=True)
class Lineup:
    """The checkpoints of a root, newest first, and the moment they are looked at."""

    every: tuple[Candidate, ...]
    usable: tuple[Candidate, ...]  # those a resume may start from
    now: datetime

    @classmethod
    def of(cls, candidates: Iterable[Candidate], now: datetime) -> Lineup:
        """Put candidates in order, whatever order they came in."""
        every = tuple(rank_by_age(sorted(candidates, key=lambda one: one.name)))
        return cls(every, tuple(one for one in every if one.usable), now)

    @property
    def known(self) -> frozenset[str]:
        """The metrics that any of them has."""
        return frozenset(name for one in self.usable for name in one.scores)


@runtime_checkable
class Keeper(Protocol):
    """One reason to keep checkpoints; its text says which."""

    def judge(self, lineup: Lineup) -> Claims:
        """A verdict on each checkpoint this keeper has something to say about."""
        ...
