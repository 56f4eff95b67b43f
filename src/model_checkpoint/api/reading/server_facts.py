"""Server facts: what is served here, and what may be done to it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from model_checkpoint.api.library.shelves import Library, Shelf
from model_checkpoint.api.reading.run_lines import health_word
from model_checkpoint.database import CheckpointSearch
from model_checkpoint.options import Graces

_DAY = 86_400.0
_KEEP = ("last:3", "best:val_loss:2")
_KINDS = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mysql": "MariaDB", "mariadb": "MariaDB"}
_ASKED = "The server was started read-only: you can look, but nothing can be changed. Start it without --read-only."
_PLAIN = (
    "Opened on plain roots: you can look, but nothing is recorded, so nothing can be pinned or removed from here. "
    "Use mckpt on the root itself, or save through a manager, which keeps a catalog."
)


def describe_server(library: Library, version: str) -> dict[str, Any]:
    """The document of the server itself."""
    shelves = library.shelves()
    counts: Counter[str] = Counter()
    for shelf in shelves:
        for stored, count in shelf.connection.health_counts(CheckpointSearch()).items():
            counts[health_word(stored)] += count
    changeable = any(shelf.writable for shelf in shelves)
    return {
        "version": version,
        "roots": sorted({space.root for shelf in shelves for space in shelf.connection.spaces() if space.root}),
        "catalog": _catalog(shelves),
        "read_only": not changeable,
        "why": None if changeable else _ASKED if library.read_only else _PLAIN,
        "runs": sum(len(shelf.connection.run_heads()) for shelf in shelves),
        "checkpoints": sum(counts.values()),
        "damaged": counts["damaged"] + counts["missing"],
        "trash_days": Graces().trash / _DAY,
        "keep": list(_KEEP),
        "now": time.time(),
    }


def _catalog(shelves: Sequence[Shelf]) -> str | None:
    """The databases behind the shelves; the one that mirrors plain roots is no catalog of anybody's."""
    kinds = [shelf.connection.database_url.partition(":")[0].partition("+")[0] for shelf in shelves if not shelf.mirror]
    return ", ".join(dict.fromkeys(_KINDS.get(kind, kind) for kind in kinds)) or None
