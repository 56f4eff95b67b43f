"""Epoch averages: what was summed up since the epoch began.

Lightning keeps neither the sums behind ``self.log(..., on_epoch=True)`` nor the state of metrics of torchmetrics. A run
that goes on in mid-epoch would see means of the rest of the epoch, and schedulers that watch them would act on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torchmetrics import Metric

_SUMS = ("value", "cumulated_batch_size")


class EpochAverages:
    """The sums of the epoch under way."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._waiting: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Every sum there is, by the name it is logged under, and every metric, by its place in the model."""
        logged = {
            key: {sum_: getattr(one, sum_) for sum_ in _SUMS if hasattr(one, sum_)} for key, one in self._logged()
        }
        return {"logged": {**self._waiting, **logged}, "metrics": dict(self._metrics())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put the metrics back; sums follow when their names are logged again."""
        self._waiting = dict(state["logged"])
        modules = dict(self._trainer.lightning_module.named_modules())
        for name, saved in state["metrics"].items():
            metric = modules[name]
            metric._update_count, metric._computed = saved["updates"], None
            for key, value in saved["state"].items():
                setattr(metric, key, value)

    def after_batch(self) -> None:
        """Add what was summed up before the resume to what was logged for the first time since."""
        if not self._waiting:
            return
        for key, one in self._logged():
            if key in self._waiting:
                _add(one, self._waiting.pop(key))

    def after_epoch(self) -> None:
        """What was not logged again is no longer of use."""
        self._waiting = {}

    def _logged(self) -> Iterator[tuple[str, Any]]:
        results = self._trainer.fit_loop.epoch_loop._results
        for key, one in results.items():
            if one.is_tensor and one.meta.on_epoch and one.update_called and not one.has_reset:
                yield key, one

    def _metrics(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, module in self._trainer.lightning_module.named_modules():
            if isinstance(module, Metric) and module.update_called:
                yield name, {"updates": module._update_count, "state": dict(module.metric_state)}


def _add(one: Any, saved: Mapping[str, torch.Tensor]) -> None:
    """Join two sums; a sum of one batch and one of those before it give the bits of the unbroken sum."""
    if one.meta.is_max_reduction or one.meta.is_min_reduction:
        one.value = one.meta.reduce_fx(saved["value"].to(one.value.device), one.value)
        return
    for name, value in saved.items():
        now = getattr(one, name)
        setattr(one, name, value.to(now.device) + now)
