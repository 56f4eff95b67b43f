"""Trainer progress: what a Trainer knows of its own progress, as a part of a checkpoint.

The state it would have written as ``trainer_state.json``, the loss summed up since it was last logged, whether it was
about to stop, and the counters of callbacks such as early stopping.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from transformers import Trainer
from transformers.trainer_callback import ExportableState

_PLACES = ("step", "epoch")  # entries of a log that are no metrics


class TrainerProgress:
    """The part ``trainer`` of a checkpoint."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._loaded: Mapping[str, Any] = {}
        self.best_saved: int | None = None  # the step of the best model; a better one that was not saved does not count

    def state_dict(self) -> dict[str, Any]:
        """All of it, as it is now."""
        trainer = self._trainer
        state = {**asdict(trainer.state), "stateful_callbacks": self._callbacks()}
        return {
            "state": np.frombuffer(json.dumps(state).encode(), np.uint8).copy(),
            "loss_since_log": float(getattr(trainer, "_tr_loss", 0.0)),  # not there before the training begins
            "best_saved": self.best_saved,
            "last_logged": int(getattr(trainer, "_globalstep_last_logged", 0)),
            "stops_early": trainer.control.should_training_stop and trainer.state.global_step < trainer.state.max_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keep it until the Trainer has made the objects it belongs to."""
        self._loaded, self.best_saved = state, state["best_saved"]

    @property
    def stops_early(self) -> bool:
        """Whether something, such as early stopping, had decided that this was the last step."""
        return bool(self._loaded.get("stops_early"))

    def words(self) -> str:
        """The saved state as the Trainer reads it; where the best model lies is said later, it is no folder of its."""
        return json.dumps({**self._state(), "best_model_checkpoint": None})

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(np.asarray(self._loaded["state"]).tobytes())
        return state

    def restore_callbacks(self) -> None:
        """Set the counters of callbacks, in place: who holds one still holds the one that counts."""
        for name, states in self._state()["stateful_callbacks"].items():
            found = [one for one in self._exportable() if type(one).__name__ == name]
            for callback, state in zip(found, states, strict=False):
                for attribute, value in state.get("attributes", {}).items():
                    setattr(callback, attribute, value)

    def restore_loss(self) -> None:
        """Go on summing up the loss, so that the next one logged is that of the unbroken run."""
        trainer, since = self._trainer, float(self._loaded["loss_since_log"])
        trainer._tr_loss.fill_(since)
        trainer._globalstep_last_logged = int(self._loaded["last_logged"])
        trainer._total_loss_scalar = -since  # the average at the end is that of this process, as ever

    def _exportable(self) -> list[ExportableState]:
        return [one for one in self._trainer.callback_handler.callbacks if isinstance(one, ExportableState)]

    def _callbacks(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for one in self._exportable():
            found.setdefault(type(one).__name__, []).append(one.state())
        return found


def metrics_of_step(trainer: Trainer) -> dict[str, float]:
    """What was logged for the step just done: an older evaluation says nothing about these weights."""
    found: dict[str, float] = {}
    for entry in reversed(trainer.state.log_history):
        if entry.get("step") != trainer.state.global_step:
            break
        numbers = {name: value for name, value in entry.items() if isinstance(value, (int, float))}
        found = {**{name: float(value) for name, value in numbers.items() if name not in _PLACES}, **found}
    return found
