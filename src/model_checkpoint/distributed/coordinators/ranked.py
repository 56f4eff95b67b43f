"""Ranked: what every coordinator knows from the start."""

from __future__ import annotations


class RankedCoordinator:
    """Which rank this is, of how many, and how long silence may last."""

    def __init__(self, rank: int, world_size: int, patience: float) -> None:
        self._rank, self._world_size, self._patience = rank, world_size, patience

    @property
    def rank(self) -> int:
        """Which of the ranks this is."""
        return self._rank

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self._world_size

    @property
    def patience(self) -> float:
        """Seconds of silence after which a rank is given up."""
        return self._patience
