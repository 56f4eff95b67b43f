"""Bridge group: the bridges of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from model_checkpoint.database.records import Experiment
from model_checkpoint.tracking.bridges.bridge import Bridge
from model_checkpoint.tracking.bridges.other_tracker import OtherTracker
from model_checkpoint.tracking.metric_queue import Logged


class BridgeGroup(Mapping[str, Bridge]):
    """Bridges by the name of the other tracker; each tells where its points are (``tally``).

    Args:
        others: The trackers.
        run: What they are told of the run.
        patience: Seconds for which the end of the run waits for each.

    Example:
        >>> list(BridgeGroup([], Experiment(id="r1", name="a"), patience=1.0))
        []
    """

    def __init__(self, others: Sequence[OtherTracker], run: Experiment, *, patience: float) -> None:
        self._bridges = {other.name: Bridge(other, run, patience=patience) for other in others}

    def __getitem__(self, name: str) -> Bridge:
        return self._bridges[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bridges)

    def __len__(self) -> int:
        return len(self._bridges)

    def put(self, calls: Sequence[Logged]) -> None:
        """Take metrics along."""
        for one in self.values():
            one.put(calls)

    def tell(self, run: Experiment) -> None:
        """Take along what is now known of the run."""
        for one in self.values():
            one.tell(run)

    def hurry(self) -> None:
        """Bring on what waits, as long as there is patience left."""
        for one in self.values():
            one.hurry()

    def close(self, run: Experiment) -> None:
        """Say how the run ended."""
        for one in self.values():
            one.close(run)
