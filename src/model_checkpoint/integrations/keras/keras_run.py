"""Keras run: the one call that takes the place of ``model.fit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import keras

from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.engine.background.save_async import finish_saves
from model_checkpoint.engine.reading.load import load
from model_checkpoint.errors import CheckpointNotFound, OptionInvalid, StructureMismatch
from model_checkpoint.integrations.keras.batch_boundary import BatchBoundary
from model_checkpoint.integrations.keras.exact_batches import BY_EPOCHS, batches_of
from model_checkpoint.integrations.keras.known_backends import require_keras
from model_checkpoint.integrations.loop.boundary import listen, obey
from model_checkpoint.integrations.loop.environment import differences, environment
from model_checkpoint.integrations.loop.opening_line import opening, tell
from model_checkpoint.integrations.loop.place import RunPlace
from model_checkpoint.integrations.trainer_catalog import open_run_catalog
from model_checkpoint.integrations.training_options import TrainingOptions
from model_checkpoint.plan import LoadReport
from model_checkpoint.storage.locate import Root

if TYPE_CHECKING:  # brings SQLAlchemy
    from model_checkpoint.integrations.loop.run_catalog import RunCatalog
    from model_checkpoint.tracking import ExperimentTracker

_SAME_EPOCHS = "whether an epoch of this data depends on its number alone is not known"
_INSTEAD = {
    "validation_split": "Cut the arrays yourself and pass validation_data=.",
    "steps_per_epoch": "Pass data of the length an epoch is to have.",
}


class KerasRun:
    """A run of Keras that goes on where the last process was, and ends as if it had never ended.

    Arrays, datasets of Keras (``keras.utils.PyDataset``) and torch DataLoaders are resumed to the very batch. Of other
    data only epochs can be begun anew; the run says so.

    Args:
        root: Where checkpoints go: a folder or URL.
        every: Batches between two saves; None saves only after validations, at the end and when the program is told to
            end.
        keep: Keepers, e.g. ``[mc.last(3), mc.best("val_loss", 2)]``; without any, all checkpoints stay.
        catalog: The URL of a database, or an ExperimentTracker: the log of each epoch and every checkpoint goes there.
        grace: Seconds for which a dropped checkpoint can be brought back.
        deadline: Seconds between SIGTERM and the end of the process, as the scheduler grants them.
        seed: What the order of the data and its augmentation follow from, together with the number of the epoch.

    Raises:
        TrainerUnknown: this version or backend of Keras is not known to resume exactly.

    Example:
        >>> import numpy as np
        >>> model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("adam", "mse")
        >>> run = KerasRun("memory://doc-keras", every=2)
        >>> history = run.fit(model, np.ones((8, 2)), np.ones((8, 1)), batch_size=2, epochs=2, verbose=0)
        >>> len(history.history["loss"]), run.step
        (2, 8)
    """

    def __init__(
        self,
        root: Root,
        *,
        every: int | None = 500,
        keep: Sequence[Keeper] = (),
        catalog: str | ExperimentTracker | None = None,
        grace: float = 3600.0,
        deadline: float = 30.0,
        seed: int = 0,
    ) -> None:
        self._options = TrainingOptions(
            root=root, every=every, keep=tuple(keep), catalog=catalog, grace=grace, deadline=deadline, unit="batches"
        )
        self._seed = seed
        self._catalog: RunCatalog | None = None
        self._boundary: BatchBoundary | None = None
        self._reasons: list[str] = []
        self.resumed_from: int | None = None
        self.opening = ""

    @property
    def step(self) -> int:
        """Batches that were trained on so far, over all epochs and processes."""
        return 0 if self._boundary is None else self._boundary.place.step

    @property
    def exact(self) -> bool | tuple[str, ...]:
        """True, or the reasons why the numbers may differ from those of an unbroken run."""
        return True if self._boundary is None else self._boundary.reasons or True

    def fit(self, model: Any, x: Any = None, y: Any = None, **options: Any) -> Any:
        """Train as ``model.fit(x, y, **options)`` would, from where the run is; return its history, all of it."""
        backend = require_keras()
        epochs, callbacks = options.pop("epochs", 1), list(options.pop("callbacks", None) or ())
        _refuse(options, callbacks)
        batches = batches_of(x, y, options, seed=self._seed)
        resumed = self._load({"backend": backend, "keras": keras.__version__}, batches)
        tell(self.opening, quiet=not options.get("verbose", True))
        begin = options.pop("initial_epoch", 0) if resumed is None else self._go_to(resumed["run"], batches)
        if resumed is None and batches is not None:
            batches.begin_epoch(begin)
        callbacks.append(history := keras.callbacks.History())
        self._catalog = self._open_catalog(epochs)
        boundary = BatchBoundary(
            self._options,
            batches=batches,
            callbacks=callbacks,
            resumed=resumed,
            reasons=self._reasons,
            catalog=self._catalog,
        )
        self._boundary = boundary
        if batches is not None:
            x, y, options["shuffle"] = batches, None, False
            model._symbolic_build(data_batch=batches[0])  # else Keras reads ahead for it, and trains on what it read
        boundary.notice = listen(self._options.deadline)
        try:
            begin = epochs if boundary.is_over else begin
            with self._catalog or nullcontext():
                model.fit(x, y, epochs=epochs, initial_epoch=begin, callbacks=[boundary, *callbacks], **options)
                boundary.finish()
        finally:
            if boundary.notice is not None:
                boundary.notice.close()
            if batches is not None:
                batches.close()
        if boundary.notice is not None and boundary.notice.should_save():
            obey(boundary.notice)  # it came after the last boundary: all is saved
        return history

    @property
    def tracker(self) -> ExperimentTracker | None:
        """The run in its catalog, once it trains; None without a catalog."""
        return None if self._catalog is None else self._catalog.tracker

    def _open_catalog(self, epochs: int) -> RunCatalog | None:
        settings = {"epochs": epochs, "every": self._options.every, "seed": self._seed}
        return open_run_catalog(self._options, resumed=self._checkpoint, settings=settings)

    def _load(self, more: Mapping[str, Any], batches: Any) -> dict[str, Any] | None:
        """What there is to go on from; the one line that tells of it."""
        told, root = list[LoadReport](), self._options.root
        self._reasons, self.resumed_from = ([_SAME_EPOCHS] if batches is None else []), None
        self._checkpoint: str | None = None
        finish_saves(root)  # of an earlier fit of this process
        try:
            state: dict[str, Any] = load(root, fallback=True, report=told.append)
        except CheckpointNotFound:
            self.opening = f"{root}: a new run" + (f"; {BY_EPOCHS}" if batches is None else "")
            return None
        own = state.get("run", {})
        if own.get("kind") != type(batches).__name__:
            raise StructureMismatch(
                f"{root}: {told[0].checkpoint} was not saved by a KerasRun with this kind of data "
                f"({own.get('kind')!r}, now {type(batches).__name__!r}). Pass the same kind, or give the run "
                "a root of its own."
            )
        changed = differences(own["environment"], {**environment(), **more})
        self._reasons = list(dict.fromkeys([*own["reasons"], *changed, *self._reasons]))
        place = RunPlace(**own["place"])
        self.resumed_from, self._checkpoint = place.step, told[0].checkpoint
        self.opening = opening(root, place, told[0], notes=own["notes"], reasons=self._reasons)
        return state

    def _go_to(self, own: Mapping[str, Any], batches: Any) -> int:
        """Let the data be where the run was; returns the epoch."""
        place = RunPlace(**own["place"])
        if batches is not None:
            self._reasons += batches.go_to(own["data"], epoch=place.epoch, batch=place.batch)
        return place.epoch


def _refuse(options: Mapping[str, Any], callbacks: Sequence[Any]) -> None:
    """Refuse what would not do what it says under a run."""
    for name, instead in _INSTEAD.items():
        if options.get(name):
            raise OptionInvalid(f"{name}=: a run cannot resume exactly with it. {instead} Nothing was done.")
    for one in callbacks:
        if isinstance(one, keras.callbacks.BackupAndRestore):
            raise OptionInvalid(
                "callbacks=: BackupAndRestore would set the run back to the beginning of an epoch. Leave it out, the "
                "run does its work. Nothing was done."
            )
