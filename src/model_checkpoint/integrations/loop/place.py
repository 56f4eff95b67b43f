"""RunPlace: where in its data a run is."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
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
        return replace(self, batch=0, base=base, begun=True)

    def after_batch(self) -> RunPlace:
        """One body later."""
        step, batch = self.step + 1, self.batch + 1  # not by replace: this is done in every body
        return RunPlace(step=step, epoch=self.epoch, batch=batch, base=self.base, begun=self.begun)

    def after_epoch(self) -> RunPlace:
        """Before the next epoch."""
        return replace(self, epoch=self.epoch + 1, batch=0, begun=False)
