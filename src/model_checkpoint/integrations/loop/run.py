"""Run: a loop over batches that resumes by itself, and ends bit-identical to one that was never interrupted."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.background.preemption import Preemption
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.jobs.job import SaveJob
from model_checkpoint.engine.reading.load import load
from model_checkpoint.engine.root.listing import read_listed, to_info
from model_checkpoint.errors import CheckpointNotFound, OptionInvalid
from model_checkpoint.integrations.around.surroundings import Surroundings
from model_checkpoint.integrations.loop.boundary import Saves, StepWatch, end_after, end_by, listen
from model_checkpoint.integrations.loop.fillable import require_fillable, unfillable
from model_checkpoint.integrations.loop.opening_line import opening
from model_checkpoint.integrations.loop.place import RunPlace
from model_checkpoint.integrations.loop.rank_boundary import RankBoundary, require_as_many
from model_checkpoint.integrations.loop.run_metrics import RunMetrics
from model_checkpoint.integrations.loop.saved_run import SavedRun
from model_checkpoint.integrations.loop.several_loaders import batches_of, feed_of, parts_of
from model_checkpoint.integrations.loop.training_bar import TrainingBar
from model_checkpoint.integrations.training_options import require_catalog, require_every
from model_checkpoint.plan import LoadReport
from model_checkpoint.storage.locate import Root, open_store

if TYPE_CHECKING:
    from model_checkpoint.integrations.loop.run_catalog import RunCatalog
    from model_checkpoint.tracking import ExperimentTracker

_OWN = "run"  # the name of our part
_END = object()
_OPTIONS = ("data", "epochs", "every", "keep", "catalog", "coordinator", "grace", "deadline", "progress")


class Run:
    """Iterate over the batches of all epochs; save between two bodies, and go on where the last process was.

    Args:
        root: Where checkpoints go: a folder or URL.
        data: A torch DataLoader, anything with ``state_dict``, or anything that can be iterated over anew each epoch;
            or several of them by name (``{"labelled": a, "unlabelled": b}``): then a batch is a dictionary of one of
            each, and the first decides what an epoch is.
        epochs: How often to go through the data.
        every: Bodies between two saves; None saves at the end and when the program is told to end.
        keep: Keepers, e.g. ``[mc.last(3), mc.best("val_loss", 2)]``: what none of them claims is dropped after each
            save; without any, all stay.
        catalog: The URL of a database, e.g. ``"sqlite:///runs.db"``, or an ``ExperimentTracker``: the run is an
            experiment there, with what it logs, its checkpoints and where it branched off; keepers then look at its
            own checkpoints alone. A database that is away stops nothing.
        coordinator: The ranks that train together, e.g. ``TorchCoordinator()``: all of them save and leave at the same
            boundary, and each goes on at its own place in the data. Rank 0 alone logs to the catalog.
        grace: Seconds for which a dropped checkpoint can be brought back; until then it takes room.
        deadline: Seconds between SIGTERM and the end of the process, as the scheduler grants them.
        progress: Show a bar; by default where there is a terminal, else only the line that says what it goes on from.
            False shows nothing.
        **objects: What is trained: modules, optimizers, schedulers, arrays, dicts of anything a checkpoint can hold; a
            resume fills them in place.

    Raises:
        CorruptedCheckpoint: nothing healthy is left to resume from.
        StructureMismatch: the objects are not those that were saved, or another number of ranks saved them.

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
        catalog: str | ExperimentTracker | None = None,
        coordinator: Coordinator | None = None,
        grace: float = 3600.0,
        deadline: float = 30.0,
        progress: bool | None = None,
        **objects: Any,
    ) -> None:
        _require(epochs=epochs, every=every, catalog=catalog, objects=objects)
        self._root, self._epochs, self._deadline, self._progress = root, epochs, deadline, progress
        self._objects, self._data, self._ranks = objects, data, coordinator
        self._meeting = None if coordinator is None or coordinator.world_size == 1 else RankBoundary(coordinator)
        metrics = RunMetrics(keep if self._meeting is None else ())  # one rank may judge what others know nothing of
        around = Surroundings(objects, besides=(weakref.ref(self), *parts_of(data)))
        self._run = SavedRun(feed := feed_of(data), metrics=metrics, around=around)
        self._feed, self._metrics = feed, metrics
        self._watch = StepWatch(objects.values())
        self._ended_at: RunPlace | None = None
        self._in_body = self._asked = self._obeyed = False
        self._turn = 0  # loops over this run so far
        self._loop: weakref.ref[Generator[Any]] | None = None  # a loop that is left for good must end
        self.resumed_from: int | None = None
        self.opening, resumed = self._resume()
        self._told = list(self._run.reasons)
        self._catalog: RunCatalog | None = None
        if catalog is not None and self._leads:
            from model_checkpoint.integrations.loop.run_catalog import RunCatalog

            settings = {"epochs": epochs, "every": every}
            self._catalog = RunCatalog(catalog, root, resumed=resumed, settings=settings, keep=keep, grace=grace)
        self._saves = Saves(
            root,
            every=every,
            lazy=self._watch.sees_optimizers,
            keep=keep,
            grace=grace,
            coordinator=coordinator,
            recorder=self._catalog,
        )
        self._saves.newest = self.resumed_from

    @property
    def _leads(self) -> bool:
        return self._ranks is None or self._ranks.rank == 0

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
        return self._metrics.values

    @property
    def exact(self) -> bool | tuple[str, ...]:
        """True, or the reasons why the numbers may differ from those of an unbroken run."""
        return tuple(self._run.reasons) or True

    @property
    def tracker(self) -> ExperimentTracker | None:
        """The run in its catalog, to add tags or settings; None without a catalog, and on other ranks than 0."""
        return None if self._catalog is None else self._catalog.tracker

    def log(self, **metrics: Any) -> None:
        """Record numbers; nothing is saved here, since what the body does after it would be lost."""
        taken, step = {name: _taken(value) for name, value in metrics.items()}, self.step + self._in_body
        self._metrics.log(taken, step=step)
        if self._catalog is not None:
            self._catalog.log(taken, step=step)

    def save(self) -> SaveJob | None:
        """Save in the background: between two bodies at once, in a body at the next boundary where a run may save.

        Returns:
            The save; None in a body, which is half done: what it does next would be lost.
        """
        if self._in_body:
            self._asked = True
            return None
        return self._save()

    def _save(self) -> SaveJob:
        self._asked, self._metrics.judged = False, None
        measured = self._metrics.of(self.step)
        return self._saves.start(self._state(), step=self.step, metrics=measured, about=self._about())

    def _state(self) -> dict[str, Any]:
        self._run.pending = not self._watch.is_clean
        return {**self._objects, _OWN: self._run}

    def _about(self) -> dict[str, Any]:
        reasons = list(self._run.reasons)
        return {"step": self.step, "epoch": self.epoch, "batch": self.batch, "exact": not reasons, "reasons": reasons}

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
        left = None if self._loop is None else self._loop()
        if left is not None:
            left.close()  # an exception may still hold it
        loop = self._all_epochs()
        self._loop = weakref.ref(loop)
        return loop

    def _all_epochs(self) -> Generator[Iterator[Any]]:
        self._turn += 1
        self._obeyed = False
        total = batches_of(self._data)
        shown = self._progress if self._leads else False
        bar = TrainingBar(total=None if total is None else total * self._epochs, shown=shown)
        if self._turn == 1:
            bar.say(self.opening)
        notice = listen(self._deadline)
        try:
            with self._catalog or nullcontext():
                if self.epoch >= self._epochs:
                    self._run.stay()
                while self.epoch < self._epochs:
                    yield self._batches(bar, notice)
                    self._in_body = False  # an epoch may be left before its end
                    self._run.place = self._run.place.after_epoch()
                if self._ended_at != self._run.place:
                    self._ended_at = self._run.place
                    self._save()
                self._saves.finish()
            if number := self._told_to_end(notice, over=True):
                self._end_by(number)  # it came after the last boundary: all is saved
        finally:
            if self.epoch < self._epochs and not sys.is_finalizing():
                self._run.put_down(in_body=self._in_body)
                self._in_body = False
            if notice is not None:
                notice.close()
            bar.close()
            self._feed.close()
            held = None if notice is None or self._obeyed or sys.is_finalizing() else notice.held_back
            if held is not None:  # the loop was left before it came to a boundary
                end_after(sys._getframe(), held)

    def _end_by(self, number: int) -> NoReturn:
        self._obeyed = True
        end_by(number)

    def _batches(self, bar: TrainingBar, notice: Any) -> Iterator[Any]:
        batches, turn = self._run.open_epoch(), self._turn
        self._tell_more(bar)
        while True:
            if self._watch.is_clean:
                self._at_boundary(notice)
            else:
                self._saves.tell_overdue(self.step, self._watch)
            batch = next(batches, _END)
            if batch is _END:
                return
            self._feed.consumed()
            self._watch.begin_body()
            self._in_body = True
            yield batch
            if turn != self._turn:
                raise OptionInvalid(
                    f"{self._root}: another loop over this run began in a body of this one, and went on where it was. "
                    "Loop over a run once at a time."
                )
            self._in_body = False
            self._run.place = self._run.place.after_batch()
            if self._catalog is not None:
                self._catalog.reached(self.step)
            if bar.is_due():
                left = self._saves.steps_left(self.step)
                bar.update(self.step, self._metrics.newest, to_save=left, stall=self._saves.stall)

    def _tell_more(self, bar: TrainingBar) -> None:
        """Say what was seen only where the loop of a resumed run began."""
        more = [one for one in self._run.reasons if one not in self._told]
        if more and self.resumed_from is not None:
            self._told += more
            bar.say(f"{self._root}: not bit for bit: {'; '.join(more)}")

    def _at_boundary(self, notice: Preemption | None) -> None:
        number = self._told_to_end(notice)
        if number:
            measured = self._metrics.of(self.step)
            with self._catalog or nullcontext():
                self._saves.leave(notice, self._state(), step=self.step, metrics=measured, about=self._about())
                self._end_by(number)
        if self._asked or self._metrics.judged == self.step or self._saves.is_due(self.step):
            self._save()

    def _told_to_end(self, notice: Preemption | None, *, over: bool = False) -> int:
        """The signal by which the program is to end here, on all ranks alike; 0 if there is none."""
        told = notice.received or 0 if notice is not None and notice.should_save() else 0
        if self._meeting is None:
            return told
        return self._meeting.verdict(self.step, told=told) if over or self._meeting.is_due(self.step) else 0

    def _resume(self) -> tuple[str, CheckpointInfo | None]:
        """Bring everything back; return in one line from where, and what it came from."""
        told, filled, ranks = list[LoadReport](), self._state(), self._ranks
        require_as_many(self._root, 1 if ranks is None else ranks.world_size)
        try:
            load(self._root, into=filled, fallback=True, report=told.append, coordinator=ranks)
        except CheckpointNotFound:
            return f"{self._root}: a new run", None
        for name, one in self._objects.items():
            if filled[name] is not one:
                raise unfillable(name, one, options=_OPTIONS)
        self.resumed_from = self.step
        if self.epoch >= self._epochs:
            self._ended_at = self._run.place
        line = opening(self._root, self._run.place, told[0], notes=self._feed.notes, reasons=self._run.reasons)
        found = read_listed(store := open_store(self._root), told[0].checkpoint.rpartition("/")[2])
        if found is None:
            return line, None
        return line, to_info(store, found)


def _taken(value: Any) -> Any:
    """A number as it is now; what lies on a device is read later, since that would make the program wait."""
    if hasattr(value, "detach"):
        return value.item() if value.device.type == "cpu" else value.detach().clone()
    jax = sys.modules.get("jax")
    return value if jax is not None and isinstance(value, jax.Array) else float(value)  # the former never changes


def _require(*, epochs: int, every: int | None, catalog: Any, objects: Mapping[str, Any]) -> None:
    if not isinstance(epochs, int) or epochs < 1:
        raise OptionInvalid(f"epochs must be a whole number above 0, got {epochs!r}")
    require_every(every, of="bodies")
    require_catalog(catalog)
    if _OWN in objects:
        raise OptionInvalid(f"{_OWN}=: this name is taken by the run's own place. Give the object another name.")
    require_fillable(objects, options=_OPTIONS)
