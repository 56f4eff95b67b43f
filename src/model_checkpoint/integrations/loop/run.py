"""Run: a loop over batches that resumes by itself, and ends bit-identical to one that was never interrupted."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from model_checkpoint.checkpoint.retention.lineup import Keeper
from model_checkpoint.engine.jobs.job import SaveJob
from model_checkpoint.engine.reading.load import load
from model_checkpoint.errors import CheckpointNotFound, OptionInvalid
from model_checkpoint.integrations.feeding.feed import feed_for, length_of
from model_checkpoint.integrations.loop.boundary import Saves, StepWatch, leave, listen
from model_checkpoint.integrations.loop.fillable import require_fillable, unfillable
from model_checkpoint.integrations.loop.opening_line import opening
from model_checkpoint.integrations.loop.place import RunPlace
from model_checkpoint.integrations.loop.saved_run import SavedRun
from model_checkpoint.integrations.loop.training_bar import TrainingBar
from model_checkpoint.plan import LoadReport
from model_checkpoint.storage.locate import Root

log = logging.getLogger("model_checkpoint.run")

_OWN = "run"  # the name of our part
_END = object()
_OPTIONS = ("data", "epochs", "every", "keep", "grace", "deadline", "progress")


class Run:
    """Iterate over the batches of all epochs; save between two bodies, and go on where the last process was.

    Args:
        root: Where checkpoints go: a folder or URL.
        data: A torch DataLoader, anything with ``state_dict``, or anything that can be iterated over anew each epoch.
        epochs: How often to go through the data.
        every: Bodies between two saves; None saves at the end and when the program is told to end.
        keep: Keepers, e.g. ``[mc.last(3), mc.best("val_loss", 2)]``: what none of them claims is dropped after each
            save; without any, all stay.
        grace: Seconds for which a dropped checkpoint can be brought back; until then it takes room.
        deadline: Seconds between SIGTERM and the end of the process, as the scheduler grants them.
        progress: Show a bar; by default where there is a terminal.
        **objects: What is trained: modules, optimizers, schedulers, arrays, dicts of anything a checkpoint can hold; a
            resume fills them in place.

    Raises:
        CorruptedCheckpoint: nothing healthy is left to resume from.
        StructureMismatch: the objects are not those that were saved.

    Example:
        >>> import numpy as np
        >>> weights = {"w": np.zeros(2)}
        >>> run = Run("memory://doc-run", data=[1.0, 2.0, 3.0], epochs=2, every=2, weights=weights)
        >>> for batch in run:
        ...     weights["w"] += batch
        ...     run.log(total=weights["w"].sum())
        >>> run.step, run.epoch, weights["w"]
        (6, 2, array([12., 12.]))
        >>> list(Run("memory://doc-run", data=[1.0, 2.0, 3.0], epochs=2, weights=weights))  # nothing is left to do
        []
    """

    def __init__(
        self,
        root: Root,
        *,
        data: Any,
        epochs: int = 1,
        every: int | None = 500,
        keep: Sequence[Keeper] = (),
        grace: float = 3600.0,
        deadline: float = 30.0,
        progress: bool | None = None,
        **objects: Any,
    ) -> None:
        _require(epochs=epochs, every=every, objects=objects)
        self._root, self._epochs, self._deadline, self._progress = root, epochs, deadline, progress
        self._objects, self._data = objects, data
        self._run = SavedRun(feed := feed_for(data))
        self._feed, self._metrics = feed, dict[str, Any]()
        self._watch = StepWatch(objects.values())
        self._saves = Saves(root, every=every, lazy=self._watch.sees_optimizers, keep=keep, grace=grace)
        self._ended_at: RunPlace | None = None
        self.resumed_from: int | None = None
        self.opening = self._resume()
        log.info("%s", self.opening)

    @property
    def step(self) -> int:
        """Bodies that were run so far, over all epochs and processes."""
        return self._run.place.step

    @property
    def epoch(self) -> int:
        """The present epoch, from 0."""
        return self._run.place.epoch

    @property
    def batch(self) -> int:
        """Batches consumed in this epoch."""
        return self._run.place.batch

    @property
    def metrics(self) -> dict[str, float]:
        """What was logged last under each name."""
        return {name: float(value) for name, value in self._metrics.items()}

    @property
    def exact(self) -> bool | tuple[str, ...]:
        """True, or the reasons why the numbers may differ from those of an unbroken run."""
        return tuple(self._run.reasons) or True

    def log(self, **metrics: Any) -> None:
        """Record numbers; nothing is saved here, since what the body does after it would be lost."""
        for name, value in metrics.items():
            self._metrics[name] = value.detach() if hasattr(value, "detach") else value

    def save(self) -> SaveJob:
        """Save now, in the background. Between two bodies only: at the end of one, more is lost than won."""
        state = {**self._objects, _OWN: self._run}
        reasons = list(self._run.reasons)
        about = {"step": self.step, "epoch": self.epoch, "batch": self.batch, "exact": not reasons, "reasons": reasons}
        return self._saves.start(state, step=self.step, metrics=self.metrics, about=about)

    def __iter__(self) -> Iterator[Any]:
        for batches in self.epochs():
            yield from batches

    def epochs(self) -> Iterator[Iterator[Any]]:
        """Yield the batches of one epoch after the other, for loops with work at the end of each.

        Example:
            >>> run = Run("memory://doc-epochs", data=[1, 2], epochs=2)
            >>> for batches in run.epochs():
            ...     seen = list(batches)
            ...     run.log(seen=len(seen))
            >>> run.metrics
            {'seen': 2.0}
        """
        total = length_of(self._data)
        bar = TrainingBar(total=None if total is None else total * self._epochs, shown=self._progress)
        bar.say(self.opening)
        notice = listen(self._deadline)
        try:
            if self.epoch >= self._epochs:
                self._run.stay()
            while self.epoch < self._epochs:
                yield self._batches(bar, notice)
                self._run.place = self._run.place.after_epoch()
            if self._ended_at != self._run.place:
                self._ended_at = self._run.place
                self.save()
            self._saves.finish()
        finally:
            if notice is not None:
                notice.close()
            bar.close()
            self._feed.close()

    def _batches(self, bar: TrainingBar, notice: Any) -> Iterator[Any]:
        batches = self._run.open_epoch()
        while True:
            if self._watch.is_clean:
                self._at_boundary(notice)
            batch = next(batches, _END)
            if batch is _END:
                return
            self._feed.consumed()
            self._watch.begin_body()
            yield batch
            self._run.place = self._run.place.after_batch()
            bar.update(self.step, self._metrics, to_save=self._saves.steps_left(self.step), stall=self._saves.stall)

    def _at_boundary(self, notice: Any) -> None:
        if notice is not None and notice.should_save():
            state = {**self._objects, _OWN: self._run}
            leave(notice, self._root, state, step=self.step, metrics=self.metrics)
        if self._saves.is_due(self.step):
            self.save()

    def _resume(self) -> str:
        """Bring everything back; return in one line from where."""
        told, filled = list[LoadReport](), {**self._objects, _OWN: self._run}
        try:
            load(self._root, into=filled, fallback=True, report=told.append)
        except CheckpointNotFound:
            return f"{self._root}: a new run"
        for name, one in self._objects.items():
            if filled[name] is not one:
                raise unfillable(name, one, options=_OPTIONS)
        self.resumed_from = self._saves.newest = self.step
        if self.epoch >= self._epochs:
            self._ended_at = self._run.place
        return opening(self._root, self._run.place, told[0], notes=self._feed.notes, reasons=self._run.reasons)


def _require(*, epochs: int, every: int | None, objects: Mapping[str, Any]) -> None:
    if not isinstance(epochs, int) or epochs < 1:
        raise OptionInvalid(f"epochs must be a whole number above 0, got {epochs!r}")
    if every is not None and (not isinstance(every, int) or every < 1):
        raise OptionInvalid(f"every must be a whole number of bodies above 0, or None, got {every!r}")
    if _OWN in objects:
        raise OptionInvalid(f"{_OWN}=: this name is taken by the run's own place. Give the object another name.")
    require_fillable(objects, options=_OPTIONS)
