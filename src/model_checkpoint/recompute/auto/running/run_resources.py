"""Run resources: what the walks and regions of one planned model share: how tensors are saved, compared and moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics
from model_checkpoint.recompute.auto.running.prefetch import Prefetcher
from model_checkpoint.recompute.auto.saving.offload import Offloader, OffloadRun
from model_checkpoint.recompute.auto.saving.saved import Saved


@dataclass(slots=True, kw_only=True, eq=False)
class RunResources:
    """The moving parts of one planned model; ``save`` is what a stage that keeps its tensors does with them."""

    statistics: RecomputeStatistics = field(default_factory=RecomputeStatistics)
    fingerprint: Callable[[Tensor], Any] | None = None
    prefetcher: Prefetcher | None = None
    offloader: Offloader | None = None
    save: Callable[[Tensor], Saved] = Saved

    def new_run(self, *, background: bool = True) -> OffloadRun | None:
        """What carries tensors away for one run through the stages, if anything does."""
        return self.offloader.new_run(self.statistics, background=background) if self.offloader is not None else None

    def drain(self) -> None:
        """End what a former backward left under way: a new forward pass must find the modules as they are."""
        if self.prefetcher is not None:
            self.prefetcher.drain()
        if self.offloader is not None:
            self.offloader.drain()

    def close(self) -> None:
        """Stop the workers."""
        if self.prefetcher is not None:
            self.prefetcher.close()
        if self.offloader is not None:
            self.offloader.close()
