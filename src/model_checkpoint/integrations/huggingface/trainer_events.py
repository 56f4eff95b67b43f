"""Trainer events: what the run learns from the Trainer's callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Listener(Protocol):
    """Who wants to know how far the Trainer is."""

    def begin(self, control: TrainerControl) -> None:
        """Training begins, or goes on."""
        ...

    def count_batch(self) -> None:
        """Another batch was trained on."""
        ...

    def end_step(self) -> None:
        """The optimizer stepped."""
        ...

    def log(self, logs: Mapping[str, Any]) -> None:
        """The Trainer logs numbers."""
        ...

    def end_epoch(self) -> None:
        """An epoch is over; evaluation and saves at its end follow."""
        ...


class TrainerEvents(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Tells of every batch, of those within an accumulation too, and of the ends of epochs."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """After the Trainer has set its sums to zero."""
        self._listener.begin(control)

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        """A batch whose gradients wait."""
        self._listener.count_batch()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """A batch after which the optimizer stepped."""
        self._listener.count_batch()
        self._listener.end_step()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        """What every logger of the Trainer gets."""
        self._listener.log(logs or {})

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        """After the last batch of an epoch."""
        self._listener.end_epoch()
