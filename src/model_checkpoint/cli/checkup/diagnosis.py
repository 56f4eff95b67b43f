"""Diagnosis: what a check found, as a value."""

from __future__ import annotations

from enum import Enum

import msgspec


class Grade(Enum):
    """How much it matters."""

    GOOD = "good"
    NOTE = "note"  # worth knowing
    BAD = "bad"  # saves fail, or what is saved is not safe


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at; ``cure`` says what to do about it."""

    topic: str
    grade: Grade
    said: str
    cure: str = ""


def good(topic: str, said: str) -> Diagnosis:
    """All is well.

    Example:
        >>> good("clock", "agrees").grade.value
        'good'
    """
    return Diagnosis(topic=topic, grade=Grade.GOOD, said=said)


def note(topic: str, said: str, cure: str = "") -> Diagnosis:
    """Worth knowing."""
    return Diagnosis(topic=topic, grade=Grade.NOTE, said=said, cure=cure)


def bad(topic: str, said: str, cure: str) -> Diagnosis:
    """Wrong, and what to do about it."""
    return Diagnosis(topic=topic, grade=Grade.BAD, said=said, cure=cure)
