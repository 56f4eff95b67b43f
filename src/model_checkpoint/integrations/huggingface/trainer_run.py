"""Trainer run: one line that makes a Trainer go on where it was killed, and end as if it had not been."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.data_loader import DataLoaderAdapter
from transformers import Trainer, TrainerControl

from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.engine.background.preemption import Preemption
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.reading.load import load
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrations.feeding.generators.seeding import mix
from model_checkpoint.integrations.feeding.prepared_loader import PreparedLoader, seeded_passes
from model_checkpoint.integrations.huggingface.trainer_events import TrainerEvents
from model_checkpoint.integrations.huggingface.trainer_methods import REPLACED, TrainerMethods
from model_checkpoint.integrations.huggingface.trainer_progress import TrainerProgress, metrics_of_step
from model_checkpoint.integrations.huggingface.trainer_rules import keepers_for, require_resumable
from model_checkpoint.integrations.loop.boundary import Saves, listen, obey
from model_checkpoint.integrations.loop.fillable import require_fillable
from model_checkpoint.integrations.loop.newest_healthy import HealthyCheckpoint, newest_healthy
from model_checkpoint.integrations.loop.opening_line import opening, tell
from model_checkpoint.integrations.loop.place import RunPlace
from model_checkpoint.integrations.loop.saved_run import SavedRun
from model_checkpoint.integrations.trainer_catalog import open_run_catalog, plain_numbers
from model_checkpoint.integrations.training_options import TrainingOptions
from model_checkpoint.plan.choose import step_name
from model_checkpoint.storage.locate import Root, open_store

if TYPE_CHECKING:  # brings SQLAlchemy
    from model_checkpoint.integrations.loop.run_catalog import RunCatalog
    from model_checkpoint.tracking import ExperimentTracker


_OWN = ("model", "optimizer", "scheduler", "scaler", "run", "trainer")


class TrainerRun:
    """Make a transformers Trainer save through this library, and resume by itself, bit for bit.

    When to save is said by the Trainer's own arguments (``save_strategy``, ``save_steps``); it saves in the background.

    Args:
        trainer: The Trainer, before ``train()``; methods of this one object are replaced.
        root: Where checkpoints go: a folder or URL.
        keep: Keepers, e.g. ``[mc.last(3), mc.best("eval_loss", 2)]``, instead of ``save_total_limit``.
        catalog: The URL of a database, or an ExperimentTracker: what the Trainer logs and every checkpoint goes there.
        grace: Seconds for which a dropped checkpoint can be brought back.
        deadline: Seconds between SIGTERM and the end of the process, as the scheduler grants them.
        **objects: Whatever else has a state, such as the averages a callback of yours keeps.

    Raises:
        TrainerUnknown: a version of transformers, a class of Trainer, or an argument with which a resume would not be
            exact; it is named.

    Example:
        >>> import tempfile, torch
        >>> from transformers import PrinterCallback, TrainingArguments
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.layer = torch.nn.Linear(2, 1)
        ...     def forward(self, x):
        ...         return {"loss": self.layer(x).square().mean()}
        >>> args = TrainingArguments(tempfile.mkdtemp(), save_steps=2, use_cpu=True, report_to=[], disable_tqdm=True,
        ...                          per_device_train_batch_size=2, logging_strategy="no", num_train_epochs=1)
        >>> trainer = Trainer(Net(), args, train_dataset=[{"x": torch.ones(2)}] * 6)
        >>> trainer.remove_callback(PrinterCallback)
        >>> run = TrainerRun(trainer, "memory://doc-trainer")
        >>> _ = trainer.train()
        >>> run.opening, run.step
        ('memory://doc-trainer: a new run', 3)
    """

    def __init__(
        self,
        trainer: Trainer,
        root: Root,
        *,
        keep: Sequence[Keeper] = (),
        catalog: str | ExperimentTracker | None = None,
        grace: float = 3600.0,
        deadline: float = 30.0,
        **objects: Any,
    ) -> None:
        require_resumable(trainer)
        if set(REPLACED) & set(vars(trainer)):
            raise OptionInvalid("trainer: methods of this object were replaced already. Make one run for one Trainer.")
        if taken := set(objects) & set(_OWN):
            raise OptionInvalid(f"{', '.join(sorted(taken))}: the run saves this by itself; use another name.")
        require_fillable(objects, options=("keep", "catalog", "grace", "deadline"))
        self._trainer, self._root, self._objects = trainer, root, objects
        self._progress = TrainerProgress(trainer)
        keepers = keepers_for(trainer.args, keep, best=lambda: self._progress.best_saved)
        self._options = TrainingOptions(
            root=root, every=None, keep=keepers, catalog=catalog, grace=grace, deadline=deadline
        )
        self._catalog: RunCatalog | None = None
        self._saves = self._new_saves()
        self._feed: PreparedLoader | None = None
        self._run: SavedRun | None = None
        self._whole: HealthyCheckpoint | None = None
        self._notice: Preemption | None = None
        self._lasting: dict[int, tuple[Any, Any]] = {}  # loaders of evaluations that are kept, and what stands for them
        self._over = False
        self.resumed_from: int | None = None
        self.opening = ""
        TrainerMethods(trainer, self)
        trainer.add_callback(TrainerEvents(self))

    @property
    def step(self) -> int:
        """Steps of the optimizer so far, over all processes."""
        return int(self._trainer.state.global_step)

    @property
    def tracker(self) -> ExperimentTracker | None:
        """The run in its catalog, once it trains; None without a catalog."""
        return None if self._catalog is None else self._catalog.tracker

    @property
    def exact(self) -> bool | tuple[str, ...]:
        """True, or the reasons why the numbers may differ from those of an unbroken run."""
        return True if self._run is None else tuple(self._run.reasons) or True

    def train(self, go: Callable[[str | None], Any]) -> Any:
        """Let the Trainer go on from the newest checkpoint that is whole, or from the beginning."""
        self._feed, self._run, self._over = None, None, False
        notice = self._notice = listen(self._options.deadline)
        try:
            with self._saved_state() as folder, self._in_catalog():
                done = go(folder)
                self._saves.finish()
        finally:
            self._close()
        if notice is not None and notice.should_save():
            obey(notice)  # it came after the last step: all is saved
        return done

    def _new_saves(self) -> Saves:
        options = self._options
        return Saves(
            options.root,
            every=options.every,
            lazy=True,
            keep=options.keep,
            grace=options.grace,
            recorder=self._catalog,
        )

    def _in_catalog(self) -> AbstractContextManager[Any]:
        """Open the run's catalog, if there is one, for this training."""
        args = self._trainer.args
        settings = {"epochs": args.num_train_epochs, "max_steps": args.max_steps, "learning_rate": args.learning_rate}
        resumed = None if self._whole is None else self._whole.name
        self._catalog = open_run_catalog(self._options, resumed=resumed, settings=settings)
        self._saves = self._new_saves()
        return self._catalog or nullcontext()

    def _close(self) -> None:
        if self._notice is not None:
            self._notice.close()
        if self._feed is not None:
            self._feed.close()

    @contextmanager
    def _saved_state(self) -> Iterator[str | None]:
        """A folder with the one file that the Trainer itself must read, or None where nothing was saved yet."""
        self._whole = newest_healthy(self._root)
        if self._whole is None:
            self.opening = f"{self._root}: a new run"
            self._tell()
            yield None
            return
        self._progress.load_state_dict(load(self._root, name=self._whole.name, parts="trainer")["trainer"])
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "trainer_state.json").write_text(self._progress.words())
            yield folder

    def feed_with(self, loader: Any) -> Any:
        """The loader of the training; one asked for besides is the Trainer's own."""
        if self._feed is not None or not self._trainer.is_in_train:
            return loader
        if not isinstance(loader, DataLoaderAdapter):  # of a class that makes its own
            loader = self._trainer.accelerator.prepare_data_loader(loader)
        self._feed = PreparedLoader(loader)
        self._run = SavedRun(self._feed)
        return self._feed.loader

    def evaluate_with(self, loader: Any) -> Any:
        """A loader whose passes draw nothing from the training, and the same at the same step."""
        if not isinstance(loader, DataLoaderAdapter):
            return loader
        if id(loader) not in self._lasting:
            wrapped = seeded_passes(loader, lambda: mix(self._trainer.args.seed, self.step))
            if not loader.persistent_workers:
                return wrapped
            self._lasting[id(loader)] = loader, wrapped
        return self._lasting[id(loader)][1]

    def place(self, *, epochs: int, max_steps: int) -> tuple[int, int]:
        """Epoch and batch where the run goes on; a run that is over has only the end of its epoch to repeat."""
        place = RunPlace(**load(self._root, name=self._chosen.name, parts="run.place")["run"]["place"])
        state = self._trainer.state
        self._over = self._progress.stops_early or state.global_step >= max_steps
        self._progress.restore_callbacks()
        self._tell_best()
        return (epochs, 0) if self._over and not place.begun else (place.epoch, place.batch)

    def restore(self) -> None:
        """Fill all objects in place, and say from where."""
        load(self._root, name=self._chosen.name, into=self._state())
        self.resumed_from = self._saves.newest = self.step
        run, feed = self._running, self._feeding
        place = run.place._replace(step=self.step)
        self.opening = opening(self._root, place, self._chosen.report, notes=feed.notes, reasons=run.reasons)
        self._tell()

    def _tell(self) -> None:
        """Say the opening line, unless the Trainer is to log nothing but errors."""
        tell(self.opening, quiet=self._trainer.args.get_process_log_level() > logging.WARNING)

    def begin(self, control: TrainerControl) -> None:
        """After the Trainer has set its sums to zero."""
        if self._whole is not None:
            self._progress.restore_loss()
            control.should_training_stop = self._over
        if self._over:
            self._running.stay()

    def open_epoch(self) -> None:
        """Find the place in the data, unless there is nothing left to train."""
        if not self._over:
            self._running.open_epoch()

    def count_batch(self) -> None:
        """Another batch was trained on."""
        self._feeding.consumed()
        self._running.place = self._running.place.after_batch()

    def end_step(self) -> None:
        """The optimizer stepped."""
        if self._catalog is not None:
            self._catalog.reached(self.step)

    def log(self, logs: Mapping[str, Any]) -> None:
        """The Trainer logs numbers."""
        if self._catalog is not None:
            self._catalog.log(plain_numbers(logs), step=self.step)

    def end_epoch(self) -> None:
        """What is saved from now on has the work at the end of the epoch in it."""
        self._running.place = self._running.place.after_epoch()

    def save(self) -> None:
        """Save in the background; the Trainer has evaluated and logged this step already."""
        trainer = self._trainer
        trainer.store_flos()
        if trainer.state.best_global_step == self.step:
            self._progress.best_saved = self.step
            self._tell_best()
        self._saves.start(self._state(), step=self.step, metrics=metrics_of_step(trainer), about=self._about())

    def _about(self) -> dict[str, Any]:
        place, reasons = self._running.place, list(self._running.reasons)
        return {
            "step": self.step,
            "epoch": place.epoch,
            "batch": place.batch,
            "exact": not reasons,
            "reasons": reasons,
        }

    def leave_if_told(self) -> None:
        """Save here and end the program, if it was told to."""
        notice, metrics = self._notice, metrics_of_step(self._trainer)
        if notice is not None and notice.should_save():
            self._saves.leave(notice, self._state(), step=self.step, metrics=metrics, about=self._about())
            obey(notice)

    def load_best(self) -> None:
        """Load the weights of the best evaluation, once all saves are durable."""
        self._saves.finish()
        load(self._root, step=self._progress.best_saved, parts="model", into=self._trainer.model)

    def _tell_best(self) -> None:
        """Let the Trainer know that there is a best model, and where."""
        step = self._progress.best_saved
        if step is not None:
            self._trainer.state.best_model_checkpoint = path_of(open_store(self._root), step_name(step))

    @property
    def _running(self) -> SavedRun:
        if self._run is None:
            raise OptionInvalid("the Trainer asked for no loader: its train() was not the one that was replaced.")
        return self._run

    @property
    def _feeding(self) -> PreparedLoader:
        if self._feed is None:
            raise OptionInvalid("the Trainer asked for no loader: its train() was not the one that was replaced.")
        return self._feed

    @property
    def _chosen(self) -> HealthyCheckpoint:
        if self._whole is None:
            raise OptionInvalid("the Trainer loads, but no checkpoint was chosen: call train() of the Trainer itself.")
        return self._whole

    def _state(self) -> dict[str, Any]:
        trainer = self._trainer
        state = {
            "model": trainer.model,
            "optimizer": trainer.optimizer,
            "scheduler": trainer.lr_scheduler,
            "run": self._running,
            "trainer": self._progress,
            **self._objects,
        }
        return state if trainer.accelerator.scaler is None else {**state, "scaler": trainer.accelerator.scaler}
