"""Local: one process that is all there is, or several threads of one process as ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from model_checkpoint import forks
from model_checkpoint.coordination import PATIENCE
from model_checkpoint.distributed.coordinators.kept_words import KeptWords
from model_checkpoint.distributed.coordinators.ranked import RankedCoordinator


@dataclass(slots=True, eq=False)
class _Board:
    values: dict[str, bytes] = field(default_factory=dict)
    kept: KeptWords = field(default_factory=KeptWords)
    changed: threading.Condition = field(default_factory=forks.condition)


class LocalCoordinator(RankedCoordinator):
    """The coordinator of a single process; :meth:`group` makes one for each of several threads.

    Example:
        >>> LocalCoordinator().world_size, [one.rank for one in LocalCoordinator.group(3)]
        (1, [0, 1, 2])
    """

    def __init__(self, *, patience: float = PATIENCE) -> None:
        super().__init__(0, 1, patience)
        self._board = _Board()

    @classmethod
    def group(cls, world_size: int, *, patience: float = PATIENCE) -> list[LocalCoordinator]:
        """The coordinators of ``world_size`` threads that save and load together."""
        made = [cls(patience=patience) for _ in range(world_size)]
        for rank, one in enumerate(made):
            one._rank, one._world_size, one._board = rank, world_size, made[0]._board
        return made

    def put(self, key: str, value: bytes) -> None:
        """Let every rank find ``value`` under ``key``."""
        with self._board.changed:
            for gone in self._board.kept.note(key).values():
                for old in gone:
                    self._board.values.pop(old, None)
            self._board.values[key] = value
            self._board.changed.notify_all()

    def collect(self, keys: Sequence[str], until: float) -> dict[str, bytes]:
        """What is known of ``keys`` when all are there, or at ``until``."""
        values = self._board.values
        with self._board.changed:
            self._board.changed.wait_for(lambda: all(key in values for key in keys), until - time.monotonic())
            return {key: values[key] for key in keys if key in values}
