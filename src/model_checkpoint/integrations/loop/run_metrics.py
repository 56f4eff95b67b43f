"""Run metrics: the numbers a run logged, the step each is of, and whether a keeper waits for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.retention.metric_keepers import KeepBest, KeepPareto
from model_checkpoint.errors import ExpressionInvalid


class RunMetrics:
    """The last value under each name; a checkpoint is told those of its own step, which are about its weights.

    A metric that a keeper names and that was not logged in the body before is a verdict on the weights of its step:
    they are to be saved. One that is logged in every body is in whatever is saved anyway.

    Example:
        >>> metrics = RunMetrics([KeepBest("val_loss", 1)])
        >>> metrics.log({"loss": 0.5}, step=3)
        >>> metrics.log({"loss": 0.4, "val_loss": 0.7}, step=4)
        >>> metrics.log({"loss": 0.3}, step=5)
        >>> metrics.values, metrics.of(5), metrics.judged
        ({'loss': 0.3, 'val_loss': 0.7}, {'loss': 0.3}, 4)
    """

    def __init__(self, keep: Sequence[Keeper] = ()) -> None:
        self._judges = [one for one in keep if isinstance(one, (KeepBest, KeepPareto))]
        self._judging: frozenset[str] = frozenset()
        self._steps: dict[str, int] = {}
        self.newest: dict[str, Any] = {}  # as it was logged: what lies on a device is read when it is asked for
        self.judged: int | None = None  # the step of the newest verdict that was not saved yet

    def log(self, taken: Mapping[str, Any], *, step: int) -> None:
        """Take down numbers of one step."""
        steps = self._steps
        if self._judges and not taken.keys() <= steps.keys():
            self._judging = self._looked_at([*steps, *taken])
        for name in taken:
            if name in self._judging and step - steps.get(name, 0) > 1:
                self.judged = step
            steps[name] = step
        self.newest.update(taken)

    def _looked_at(self, known: Collection[str]) -> frozenset[str]:
        """The metrics that keepers name; a text may be a metric as soon as that is known, e.g. ``val/loss``."""
        found: set[str] = set()
        for one in self._judges:
            try:
                found.update(one.names(known))
            except ExpressionInvalid:
                continue  # dropping old checkpoints tells what is wrong with it
        return frozenset(found)

    @property
    def values(self) -> dict[str, float]:
        """What was logged last under each name."""
        return {name: float(value) for name, value in self.newest.items()}

    def of(self, step: int) -> dict[str, float]:
        """What was logged of one step and not again since."""
        return {name: float(value) for name, value in self.newest.items() if self._steps[name] == step}

    def state_dict(self) -> dict[str, Any]:
        """All of it."""
        return {"values": self.values, "steps": dict(self._steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.newest, self._steps = dict(state["values"]), dict(state["steps"])
        self._judging = self._looked_at(self._steps)
