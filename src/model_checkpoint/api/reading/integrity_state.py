"""Integrity state: how far all that is stored can be trusted."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from typing import Any

from model_checkpoint.api.library.shelves import Library
from model_checkpoint.api.reading.damage_lines import damage_of
from model_checkpoint.database import CheckpointSearch

_MOST_DAMAGED, _MOST_EVENTS = 100, 50


def describe_integrity(library: Library) -> dict[str, Any]:
    """Ages, damage and the latest verifications of all shelves."""
    now, ages = time.time(), Counter({"day": 0, "week": 0, "older": 0, "never": 0, "damaged": 0})
    damage: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    hurt = CheckpointSearch(health=("damaged", "missing", "unreadable"))
    for shelf in library.shelves():
        connection = shelf.connection
        ages.update(asdict(connection.verified_ages(now)))
        for row in connection.search_checkpoints(hurt, limit=_MOST_DAMAGED).items:
            damage.extend(damage_of(connection, row))
        events += [
            {
                "checkpoint": one.checkpoint_id,
                "at": one.checked_at,
                "what": "repair" if one.details.get("repaired") else "verify",
                "outcome": one.outcome,
                "seconds": one.seconds,
                "bytes": one.bytes_read,
            }
            for one in connection.integrity(limit=_MOST_EVENTS)
        ]
    latest = sorted(events, key=lambda one: one["at"], reverse=True)[:_MOST_EVENTS]
    return {"ages": dict(ages), "damage": damage, "events": latest}
