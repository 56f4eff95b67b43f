"""Verdict: what verification found of one checkpoint, check by check, and of many."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_TOLD_PROBLEMS = 100  # of one checkpoint, in a catalog


class CheckName(StrEnum):
    """The five questions, in the order they are asked."""

    RECORD = "record"  # is it known, and does its manifest make sense?
    FILES = "files"  # are all its files there?
    SIZE = "size"  # have they the recorded sizes?
    DIGEST = "digest"  # has every byte the recorded SHA-256?
    LOADABLE = "loadable"  # can a reader make sense of them?


class CheckpointHealth(StrEnum):
    """The answer in one word."""

    HEALTHY = "healthy"
    DAMAGED = "damaged"
    MISSING = "missing"
    UNREADABLE = "unreadable"  # here and now, which does not prove that it is damaged
    UNCHECKED = "unchecked"  # a hook said no


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question and its answer; ``passed`` is None if it could not be asked."""

    name: CheckName
    passed: bool | None
    problems: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointVerdict:
    """What one verification of one checkpoint found.

    Example:
        >>> CheckpointVerdict(checkpoint_id="c1", outcome=CheckpointHealth.HEALTHY).ok
        True
    """

    checkpoint_id: str
    outcome: CheckpointHealth
    checks: Sequence[Check] = ()
    path: str = ""
    bytes_read: int = 0
    seconds: float = 0.0
    checked_at: float = field(default_factory=time.time)
    method: str = "sha256"
    repaired: bool = False
    id: str = ""  # of the record that a catalog keeps of it
    details: Mapping[str, Any] = field(init=False, hash=False)  # plain values, for a catalog

    def __post_init__(self) -> None:
        details = {
            "checks": {check.name.value: check.passed for check in self.checks},
            "problems": list(self.problems[:_TOLD_PROBLEMS]),
            "repaired": self.repaired,
        }
        object.__setattr__(self, "details", details)

    @property
    def ok(self) -> bool:
        """Whether every byte is as it was saved."""
        return self.outcome is CheckpointHealth.HEALTHY

    @property
    def problems(self) -> tuple[str, ...]:
        """All that is wrong, in the order of the checks."""
        return tuple(problem for check in self.checks for problem in check.problems)

    def check(self, name: CheckName | str) -> Check:
        """The answer to one question."""
        found = [check for check in self.checks if check.name == CheckName(name)]
        return found[0] if found else Check(name=CheckName(name), passed=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubReport:
    """What one call verified; ``complete`` unless time ran out or only a sample was asked for.

    Example:
        >>> ScrubReport().ok
        True
    """

    verdicts: Sequence[CheckpointVerdict] = ()
    complete: bool = True
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether all that was verified is healthy."""
        return all(verdict.ok for verdict in self.verdicts)

    @property
    def bytes_read(self) -> int:
        """How many bytes were read for it."""
        return sum(verdict.bytes_read for verdict in self.verdicts)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many checkpoints had each outcome."""
        return Counter(verdict.outcome.value for verdict in self.verdicts)
