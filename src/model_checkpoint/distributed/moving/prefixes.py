"""Prefixes: what a checkpoint is called if nobody says it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

from model_checkpoint.storage.contract.store import Store


def default_prefix(store: Store, now: datetime | None = None) -> str:
    """``checkpoint_<UTC yyyymmdd_HHMMSS>``, with a number behind it if there is one of that second already.

    Example:
        >>> import model_checkpoint as mc
        >>> from model_checkpoint.storage import open_store
        >>> store, moment = open_store("memory://doc-prefix"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        >>> default_prefix(store, moment)
        'checkpoint_20260102_030405'
        >>> _ = mc.save(store, {"a": 1}, name=default_prefix(store, moment))
        >>> default_prefix(store, moment)
        'checkpoint_20260102_030405_2'
    """
    moment = (datetime.now(UTC) if now is None else now).astimezone(UTC)
    first = f"checkpoint_{moment:%Y%m%d_%H%M%S}"
    if not store.has(first):
        return first
    return next(name for number in count(2) if not store.has(name := f"{first}_{number}"))
