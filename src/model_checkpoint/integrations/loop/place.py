"""RunPlace: where in its data a run is."""

from __future__ import annotations

from typing import NamedTuple


class RunPlace(NamedTuple):
    """Between two bodies of the loop.

    Example:
        >>> RunPlace().begun_with(5).after_batch()
        RunPlace(step=1, epoch=0, batch=1, base=5, begun=True)
    """

    step: int = 0  # bodies that were run, over all epochs
    epoch: int = 0
    batch: int = 0  # batches consumed in this epoch
    base: int = 0  # what was drawn when the epoch began, for the seeds of workers
    begun: bool = False  # whether that was drawn yet

    def begun_with(self, base: int) -> RunPlace:
        """The start of the epoch, its seed drawn."""
        return self._replace(batch=0, base=base, begun=True)

    def after_batch(self) -> RunPlace:
        """One body later."""
        step, epoch, batch, base, begun = self  # not by _replace: this is done in every body
        return RunPlace(step + 1, epoch, batch + 1, base, begun)

    def after_epoch(self) -> RunPlace:
        """Before the next epoch."""
        return self._replace(epoch=self.epoch + 1, batch=0, begun=False)
