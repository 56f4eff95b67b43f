"""Ending: how an attempt is stopped, once, whatever becomes of its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class _Stoppable(Protocol):
    def give_up(self) -> None: ...


class EndingAttempt:
    """An attempt with files being written, until it is over."""

    _over: bool
    _writers: Mapping[str, _Stoppable]

    def _stop(self) -> bool:
        """Close what is open; says whether it was this call that ended the attempt."""
        if self._over:
            return False
        self._over = True
        for writer in self._writers.values():
            writer.give_up()
        return True
