"""Event records: what happened to runs, checkpoints and the catalog itself, as values.

Knows no SQL. Times are seconds since 1970, UTC. Numbers come back exactly, NaN and infinities included; of lists and
tuples inside ``details`` lists come back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdge:
    """``child`` came out of ``parent``: a checkpoint out of a run, a run out of a checkpoint.

    Example:
        >>> LineageEdge(parent="c1", child="r2", kind="resumed", step=100).kind
        'resumed'
    """

    parent: str
    child: str
    kind: str  # "saved": run -> checkpoint; "resumed": checkpoint -> run; "derived": checkpoint -> checkpoint
    step: int | None = None  # where the child branches off
    created_at: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One thing that was done; never changed, never removed."""

    id: str
    at: float
    actor: str
    action: str  # save, load, delete, pin, restore, retention, repair, migrate, reindex, ...
    outcome: str
    subject: str = ""  # the id or name it was done to
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrityRecord:
    """What one verification of one checkpoint found.

    Example:
        >>> IntegrityRecord(checkpoint_id="c1", outcome="healthy", method="sha256").outcome
        'healthy'
    """

    checkpoint_id: str
    outcome: str  # "healthy", "damaged", "missing", "unreadable": the checkpoint's health from now on
    method: str = "sha256"
    checked_at: float = field(default_factory=time.time)
    seconds: float = 0.0
    bytes_read: int = 0
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    id: str = ""  # given by the catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionIntent:
    """A deletion, or a return, decided and not finished until ``finished_at``: whoever finds it open carries on."""

    id: str
    checkpoint_id: str
    action: str = "delete"
    plan_id: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    created_at: float = field(default_factory=time.time)
    finished_at: float | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A migration that is about to begin or has ended, as it is told to ``notify``."""

    moment: str  # "before" or "after"
    database: str  # without its password
    from_revision: str
    to_revision: str
    backup: str = ""
