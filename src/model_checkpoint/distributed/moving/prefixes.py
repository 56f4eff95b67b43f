"""Prefixes: what a checkpoint is called if nobody says it, and whether there is one of a name."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.root.listing import read_listed
from model_checkpoint.errors import WrongReference
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


def require_there(store: Store, prefix: str) -> None:
    """Raise if there is no checkpoint of that prefix, or none that can be read."""
    found = read_listed(store, prefix)
    if found is None:
        where, names = path_of(store, prefix), sorted(store.names())
        known = f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" or "none"
        raise WrongReference(
            f"{where}: no such checkpoint; there are {len(names)}: {known}. Choose one of them.",
            where,
        )
    if found.error is not None:
        raise found.error
