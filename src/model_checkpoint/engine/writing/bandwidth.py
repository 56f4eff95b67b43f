"""Bandwidth: how many bytes per second saves to a root have really reached the medium with."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict, deque

from model_checkpoint import forks
from model_checkpoint.engine.common.pages import new_slab
from model_checkpoint.options import MIB
from model_checkpoint.storage.contract.store import Store

_KEPT = 3  # so many of the last saves count, the slowest of them most
_TELLING = 4 * MIB  # what is smaller measures the cost of a commit, not the medium
_PROBE = 8 * MIB

_rates: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT))
_lock = forks.lock()


def note(url: str, nbytes: int, seconds: float) -> None:
    """Remember how long a save took from its first call to its commit.

    Example:
        >>> note("memory://doc-rate", 64 * MIB, 2.0)
        >>> note("memory://doc-rate", 64 * MIB, 4.0)
        >>> measured("memory://doc-rate") == 16 * MIB
        True
    """
    if nbytes >= _TELLING and seconds > 0:
        with _lock:
            _rates[url].append(nbytes / seconds)


def measured(url: str) -> float | None:
    """The slowest of the last saves, in bytes per second; None if there was none worth measuring."""
    with _lock:
        return min(_rates[url], default=None)


def probe(store: Store) -> float:
    """Write a file that nobody will see and return the bytes per second it took."""
    stage = store.stage("probe", uuid.uuid4().hex)
    try:
        started = time.monotonic()
        writer = stage.create("probe", _PROBE)
        writer.write(0, new_slab(_PROBE).data)
        writer.seal()
        return _PROBE / max(time.monotonic() - started, 1e-6)
    finally:
        stage.abort()
