"""Verdict: what verification found of one checkpoint, check by check, and of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from model_checkpoint.database.event_records import IntegrityRecord
from model_checkpoint.notebook_html import html_table

_TOLD_PROBLEMS = 100  # of one check


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


class CheckpointVerdict(IntegrityRecord):
    """What one verification of one checkpoint found: the very record that a catalog keeps of it.

    Example:
        >>> verdict = CheckpointVerdict(checkpoint_id="c1", outcome=CheckpointHealth.HEALTHY)
        >>> verdict.ok, verdict.check("digest").passed
        (True, None)
    """

    __slots__ = ()

    @classmethod
    def of(cls, record: IntegrityRecord) -> CheckpointVerdict:
        """What a catalog kept, as a verdict again."""
        told = {field.name: getattr(record, field.name) for field in fields(IntegrityRecord)}
        return cls(**(told | {"outcome": CheckpointHealth(record.outcome)}))

    @property
    def ok(self) -> bool:
        """Whether every byte is as it was saved."""
        return self.outcome == CheckpointHealth.HEALTHY

    @property
    def path(self) -> str:
        """Where the checkpoint lies."""
        return str(self.details.get("path", ""))

    @property
    def repaired(self) -> bool:
        """Whether it was damaged before, and mended."""
        return bool(self.details.get("repaired", False))

    @property
    def parity(self) -> tuple[str, ...]:
        """What is wrong with its parity files: the state is whole, but less protected than it was meant to be."""
        return tuple(self.details.get("parity", ()))

    @property
    def checks(self) -> list[Check]:
        """The five answers, in the order they were asked."""
        return [
            Check(name=CheckName(name), passed=told["passed"], problems=tuple(told["problems"]))
            for name, told in self.details.get("checks", {}).items()
        ]

    def check(self, name: CheckName | str) -> Check:
        """The answer to one question."""
        found = [check for check in self.checks if check.name == CheckName(name)]
        return found[0] if found else Check(name=CheckName(name), passed=None)

    @property
    def problems(self) -> tuple[str, ...]:
        """All that is wrong, in the order of the checks."""
        return tuple(problem for check in self.checks for problem in check.problems)


def details_of(
    checks: Sequence[Check], *, path: str, parity: Sequence[str] = (), repaired: bool = False
) -> dict[str, Any]:
    """The details of a verdict as plain values; of very many problems the first.

    Example:
        >>> details_of([Check(name=CheckName.SIZE, passed=True)], path="runs/a")["checks"]
        {'size': {'passed': True, 'problems': []}}
    """
    told = {
        check.name.value: {"passed": check.passed, "problems": list(check.problems[:_TOLD_PROBLEMS])}
        for check in checks
    }
    return {"path": path, "repaired": repaired, "checks": told, "parity": list(parity[:_TOLD_PROBLEMS])}


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
        return Counter(str(verdict.outcome) for verdict in self.verdicts)

    def _repr_html_(self) -> str:
        """How a notebook shows it: one line for each checkpoint."""
        rows = [(one.path or one.checkpoint_id, one.outcome, f"{one.bytes_read:,}") for one in self.verdicts]
        counts = (
            ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items())) or "nothing to verify"
        )
        title = f"verified: {counts}, {self.bytes_read:,} bytes read{'' if self.complete else '; not all was reached'}"
        return html_table(title, ["checkpoint", "", "bytes"], rows)
