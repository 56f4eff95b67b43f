"""Batch boundary: the callback that saves, leaves and goes on between two batches.

It is the first of all callbacks: when it hears that a batch begins, all the others are done with the one before, and
none has begun with the next. What was saved is put back there too, as late as can be: by then every callback has set
itself up, scheduled its learning rate and drawn its numbers, as it had before the save. What was saved at the end of a
run is put back where the next epoch begins.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras

from model_checkpoint.engine.background.preemption import Preemption
from model_checkpoint.integrations.keras.callback_states import CallbackStates
from model_checkpoint.integrations.keras.exact_batches import BY_EPOCHS
from model_checkpoint.integrations.keras.model_variables import put_variables, require_variables, take_variables
from model_checkpoint.integrations.loop.boundary import Saves, obey
from model_checkpoint.integrations.loop.environment import environment
from model_checkpoint.integrations.loop.place import RunPlace
from model_checkpoint.integrations.training_options import TrainingOptions
from model_checkpoint.tree import RngState, rng_state

if TYPE_CHECKING:  # brings SQLAlchemy
    from model_checkpoint.integrations.loop.run_catalog import RunCatalog

_OWN = "run"  # the name of our part


class BatchBoundary(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    """Everything of one fit that must be saved, and when.

    Args:
        options: What the user chose.
        batches: The data, if it can be begun anywhere; None if only its epochs can.
        callbacks: The user's, whose states are kept.
        resumed: The state to go on from.
        reasons: Why numbers may differ.
        catalog: The run in its catalog, if there is one.
    """

    def __init__(
        self,
        options: TrainingOptions,
        *,
        batches: Any,
        callbacks: Sequence[Any],
        resumed: Mapping[str, Any] | None,
        reasons: Sequence[str],
        catalog: RunCatalog | None = None,
    ) -> None:
        super().__init__()
        self._options, self._batches, self._resumed = options, batches, resumed
        self._callbacks = CallbackStates(callbacks)
        self._reasons = list(reasons)
        self._catalog = catalog
        self._saves = Saves(
            options.root, every=options.every, lazy=False, keep=options.keep, grace=options.grace, recorder=catalog
        )
        self._place = RunPlace() if resumed is None else RunPlace(**resumed[_OWN]["place"])
        self._begun_at = self._place  # where the epoch under way was when this process began it
        self._logs: Mapping[str, Any] = {}
        self._has_trained = False
        self._saves.newest = None if resumed is None else self._place.step
        self.notice: Preemption | None = None

    # --- what Keras calls ---------------------------------------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        """Show the other callbacks the weights the run goes on with."""
        if self._resumed is not None:
            require_variables(self.model, self._resumed)
            put_variables(self.model, self._resumed)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin the data's epoch, and tell Keras how long it is: less where it was begun before."""
        if epoch != self._place.epoch:
            self._place = self._place._replace(epoch=epoch, batch=0)
        self._begun_at = self._place
        if self._batches is not None:
            self._batches.begin_epoch(epoch, skip=self._place.batch)
            self._batches.open()
            _tell_length(len(self._batches))
        if self._resumed is not None and self._resumed[_OWN]["over"]:  # saved when no epoch was under way
            self._put_back()
            self.model.reset_metrics()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Between two batches."""
        at = self._begun_at
        self._place = at._replace(step=at.step + batch, batch=at.batch + batch)
        if self._resumed is not None:
            self._put_back()
        self._at_boundary()
        self._has_trained = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Know what was logged, and how far the epoch is."""
        at = self._begun_at
        self._place = at._replace(step=at.step + batch + 1, batch=at.batch + batch + 1)
        self._logs = logs or {}
        if self._catalog is not None:
            self._catalog.reached(self._place.step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Know what a validation gave: it belongs to the weights as they are now."""
        self._logs = logs or {}
        self._place = self._place._replace(epoch=epoch + 1, batch=0)
        if self._catalog is not None:
            self._catalog.log(self._metrics(), step=self._place.step)

    def on_train_end(self, logs: Any = None) -> None:
        """Where nothing was left to train, let the callbacks know what they knew."""
        if self._resumed is not None:
            self._callbacks.load_state_dict(self._resumed["callbacks"])

    # --- what it does -------------------------------------------------------------------------------------------------

    @property
    def place(self) -> RunPlace:
        """Where the run is."""
        return self._place

    @property
    def is_over(self) -> bool:
        """Whether a callback had found that there is nothing left to learn."""
        return self._resumed is not None and bool(self._resumed[_OWN]["stopped"])

    def finish(self) -> None:
        """Save what came out when all callbacks are done, and return when it is durable."""
        if self._resumed is not None:  # nothing was left to do: the generators are as the end of the run left them
            RngState(self._resumed[_OWN]["generators"]).restore()
        if self._has_trained:
            if self._batches is not None:
                self._batches.finish()
            self._save(over=True)
        self._saves.finish()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the numbers may differ from those of an unbroken run."""
        doubts = () if self._batches is None else self._batches.doubts
        return tuple(dict.fromkeys([*self._reasons, *doubts]))

    def _put_back(self) -> None:
        resumed, self._resumed = self._resumed, None
        assert resumed is not None
        put_variables(self.model, resumed)
        self._callbacks.load_state_dict(resumed["callbacks"])
        opened = None if self._batches is None else self._batches.opened_with
        (opened or RngState(resumed[_OWN]["generators"])).restore()  # last: what all that drew does not count

    def _at_boundary(self) -> None:
        can_save = self._batches is not None or self._place.batch == 0
        if self.notice is not None and self.notice.should_save():
            if not can_save:
                obey(self.notice)  # an epoch that cannot be begun in its midst is lost whatever we wait for
            step, metrics = self._place.step, self._metrics()
            self._saves.leave(self.notice, self._state(), step=step, metrics=metrics, about=self._about())
            obey(self.notice)
        judged = any(name.startswith("val_") for name in self._logs) and self._saves.newest != self._place.step
        if can_save and self._place.step and (judged or self._saves.is_due(self._place.step)):
            self._save()

    def _save(self, *, over: bool = False) -> None:
        self._saves.start(self._state(over=over), step=self._place.step, metrics=self._metrics(), about=self._about())

    def _about(self) -> dict[str, Any]:
        place, reasons = self._place, list(self.reasons)
        return {
            "step": place.step,
            "epoch": place.epoch,
            "batch": place.batch,
            "exact": not reasons,
            "reasons": reasons,
        }

    def _state(self, *, over: bool = False) -> dict[str, Any]:
        place, data = self._place, None if self._batches is None else self._batches.state_dict(done=self._place.batch)
        own = {
            "kind": type(self._batches).__name__,
            "place": place._asdict(),
            "data": data,
            "generators": rng_state().state_dict(),
            "over": over,
            "stopped": over and bool(self.model.stop_training),
            "environment": {**environment(), "backend": keras.backend.backend(), "keras": keras.__version__},
            "reasons": list(self.reasons),
            "notes": [BY_EPOCHS] if self._batches is None else list(self._batches.notes),
        }
        return {**take_variables(self.model), "callbacks": self._callbacks.state_dict(), _OWN: own}

    def _metrics(self) -> dict[str, float]:
        return {name: float(value) for name, value in self._logs.items()}


def _tell_length(batches: int) -> None:
    """Let ``fit`` know how many batches this epoch has: it asked once, before the first."""
    frame = sys._getframe(1)
    while frame is not None:
        iterator = frame.f_locals.get("epoch_iterator")
        if iterator is not None and hasattr(iterator, "_num_batches"):
            iterator._num_batches = batches
            return
        frame = frame.f_back  # type: ignore[assignment]
