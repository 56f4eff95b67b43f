"""Tolerated failures: what may fail without failing a save: logged, counted, and gone on from."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from model_checkpoint import forks

log = logging.getLogger("model_checkpoint.manager")


class ToleratedFailures:
    """How often each helper of a manager failed.

    Example:
        >>> failures = ToleratedFailures()
        >>> with failures.tolerated("cache"):
        ...     raise OSError("gone")
        >>> failures.counts()
        {'cache': 1}
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = forks.lock()

    @contextmanager
    def tolerated(self, helper: str) -> Iterator[None]:
        """Go on whatever is raised inside, once it is logged and counted."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # a helper may raise anything, and no save may end by that
            self.note(helper, error)

    def note(self, helper: str, error: BaseException) -> None:
        """Log and count one failure."""
        with self._lock:
            self._counts[helper] += 1
            first = self._counts[helper] == 1
        log.log(logging.WARNING if first else logging.INFO, "the %s failed, going on without it: %s", helper, error)

    def counts(self) -> dict[str, int]:
        """Failures so far, by helper."""
        with self._lock:
            return dict(self._counts)
