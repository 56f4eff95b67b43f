"""Fit session: one call of ``fit``: where it saves, leaves, and goes on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from model_checkpoint.engine.background.preemption import Preemption
from model_checkpoint.engine.background.save_async import finish_saves
from model_checkpoint.engine.reading.load import load
from model_checkpoint.errors import CheckpointNotFound, OptionInvalid, StructureMismatch
from model_checkpoint.integrations.lightning.checkpoint_references import CheckpointReferences
from model_checkpoint.integrations.lightning.epoch_averages import EpochAverages
from model_checkpoint.integrations.lightning.log_listening import listen_to_logs, turn_away_from_logs
from model_checkpoint.integrations.lightning.placed_loaders import EvaluationLoader, LoaderGroup
from model_checkpoint.integrations.lightning.restarting import go_on_between_batches, hush_sigterm
from model_checkpoint.integrations.lightning.trainer_checks import require_exact
from model_checkpoint.integrations.loop.boundary import Saves, StepWatch, listen, obey
from model_checkpoint.integrations.loop.environment import differences, environment
from model_checkpoint.integrations.loop.opening_line import opening
from model_checkpoint.integrations.loop.place import RunPlace
from model_checkpoint.integrations.trainer_catalog import open_run_catalog
from model_checkpoint.integrations.training_options import TrainingOptions
from model_checkpoint.plan import LoadReport

if TYPE_CHECKING:  # brings SQLAlchemy
    from model_checkpoint.integrations.loop.run_catalog import RunCatalog

log = logging.getLogger("model_checkpoint.lightning")

_OWN = "run"  # the name of our part in Lightning's dictionary


class FitSession:
    """The trainer of one fit, and all that is changed about it until the fit is over."""

    def __init__(self, trainer: Any, options: TrainingOptions) -> None:
        self._trainer, self._options = trainer, options
        self.resumed_from: int | None = None
        self.opening = f"{options.root}: a new run"
        self._group, self._averages = LoaderGroup(self._between), EpochAverages(trainer)
        self._evaluations: list[EvaluationLoader] = []
        self.catalog: RunCatalog | None = None
        self._checkpoint: str | None = None  # what the fit goes on from
        self._watch, self._saves = StepWatch(()), self._new_saves(())
        self._notice: Preemption | None = None
        self._is_over = False
        self._own: Mapping[str, Any] = {}  # our part of what was loaded
        self._validated = -1  # the step of the newest validation
        self._judged: set[str] = set()  # the metrics it gave
        self._unjudged: dict[str, Any] = {}  # all that was logged before it
        self._reasons: list[str] = []

    # --- before the training ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Load what there is to go on from, and take the place of what Lightning would use."""
        trainer, strategy = self._trainer, self._trainer.strategy
        require_exact(trainer)
        loaded = self._load()
        if loaded is not None:
            trainer._checkpoint_connector._loaded_checkpoint = dict(loaded)
            trainer.should_stop = self._own["stopped"]
            self._group.go_to(self._own["loaders"])
        self._open_catalog()
        self._process, self._files = strategy.process_dataloader, strategy.checkpoint_io
        strategy.process_dataloader = self._processed
        strategy.checkpoint_io = CheckpointReferences(self._files, loaded)
        for one in (log, logging.getLogger(type(trainer).__module__)):  # Lightning's own is the one users see
            one.info("%s", self.opening)

    def _load(self) -> dict[str, Any] | None:
        told, root = list[LoadReport](), self._options.root
        finish_saves(root)  # of an earlier fit of this process
        try:
            state: dict[str, Any] = load(root, fallback=True, report=told.append)
        except CheckpointNotFound:
            return None
        self._own = state.pop(_OWN, {})
        if "loaders" not in self._own:
            raise StructureMismatch(
                f"{root}: {told[0].checkpoint} was not saved by a LightningRun. Give the run a root of its own."
            )
        self.resumed_from, self._checkpoint = state["global_step"], told[0].checkpoint
        changed = differences(self._own["environment"], environment())
        self._reasons = list(dict.fromkeys([*self._own["reasons"], *changed]))
        place = RunPlace(**self._own["place"])
        self.opening = opening(root, place, told[0], notes=self._own["notes"], reasons=self._reasons)
        return state

    def _open_catalog(self) -> None:
        """Let the catalog, if there is one, know of the run, and of all that is logged from now on."""
        options, trainer = self._options, self._trainer
        settings = {"max_epochs": trainer.max_epochs, "max_steps": trainer.max_steps, "every": options.every}
        self.catalog = catalog = open_run_catalog(options, resumed=self._checkpoint, settings=settings)
        if catalog is not None:
            listen_to_logs(trainer, lambda metrics, step: catalog.log(metrics, step=step))

    def _processed(self, loader: Any) -> Any:
        """What Lightning reads instead of a loader it has prepared."""
        loader, trainer = self._process(loader), self._trainer
        if trainer.training:
            return self._group.wrap(loader, epoch=trainer.current_epoch)
        if getattr(loader, "num_workers", 0) and not hasattr(loader, "state_dict"):
            self._evaluations.append(EvaluationLoader(loader, lambda: (trainer.global_step, trainer.current_epoch)))
            return self._evaluations[-1]
        return loader

    def optimizers_made(self) -> None:
        """Watch the optimizers, which are there from now on."""
        self._watch = StepWatch(self._trainer.optimizers)
        self._saves = self._new_saves(self._trainer.optimizers)

    def _new_saves(self, optimizers: Sequence[Any]) -> Saves:
        options = self._options
        saves = Saves(
            options.root,
            every=options.every,
            lazy=bool(optimizers),
            keep=options.keep,
            grace=options.grace,
            guard=optimizers,
            recorder=self.catalog,
        )
        saves.newest = self.resumed_from
        return saves

    def training_begins(self) -> None:
        """Hear signals from now on, and see to it that Lightning goes on as it would have gone."""
        if self._own and self._trainer.fit_loop.restarting:
            go_on_between_batches(self._trainer)
            self._averages.load_state_dict(self._own["averages"])
        if isinstance(files := self._trainer.strategy.checkpoint_io, CheckpointReferences):
            files.forget()
        hush_sigterm(self._trainer)
        self._notice = listen(self._options.deadline)

    # --- during the training ------------------------------------------------------------------------------------------

    def body_begins(self) -> None:
        """A batch is about to be trained on."""
        self._group.body_begins()
        self._watch.begin_body()

    def body_ends(self) -> None:
        """A batch was trained on; what is logged of an epoch is whole before anyone looks at it."""
        self._averages.after_batch()
        if self.catalog is not None:
            self.catalog.reached(self._trainer.global_step)

    def epoch_ends(self) -> None:
        """The sums of the next epoch begin at nothing."""
        self._averages.after_epoch()

    def validation_begins(self) -> None:
        """Take down what was logged before."""
        self._unjudged = dict(self._trainer.callback_metrics)

    def validation_ends(self) -> None:
        """Know which metrics belong to this very step."""
        if not self._trainer.sanity_checking:
            logged, before = self._trainer.callback_metrics, self._unjudged
            self._judged |= {name for name, value in logged.items() if value is not before.get(name)}
            self._validated = self._trainer.global_step

    def _between(self) -> None:
        """Between two batches, everything of the one before done."""
        self._averages.after_batch()
        if not self._watch.is_clean:
            self._saves.tell_overdue(self._trainer.global_step, self._watch)
            return
        step, notice = self._trainer.global_step, self._notice
        if notice is not None and notice.should_save():
            state = self._state()
            self._saves.leave(notice, state, step=step, metrics=self._metrics(), about=_about(state))
            obey(notice)
        if self._saves.is_due(step) or (self._validated == step and self._saves.newest != step):
            self._save()

    def _save(self, *, over: bool = False) -> None:
        state = self._state(over=over)
        self._saves.start(state, step=self._trainer.global_step, metrics=self._metrics(), about=_about(state))

    def _state(self, *, over: bool = False) -> dict[str, Any]:
        """All that Lightning would save, and our part."""
        trainer, group = self._trainer, self._group
        state = dict(trainer._checkpoint_connector.dump_checkpoint(weights_only=False))
        if _OWN in state:
            raise OptionInvalid(f"on_save_checkpoint: the name {_OWN!r} is taken by the run's own place. Use another.")
        state["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)  # our part has what is in there, and more
        done = trainer.fit_loop.epoch_loop.batch_progress.current.completed
        place = RunPlace(step=trainer.global_step, epoch=trainer.current_epoch, batch=0 if over else done)
        state[_OWN] = {
            "place": place._asdict(),
            "loaders": group.states(done=done, over=over),
            "averages": self._averages.state_dict(),
            "stopped": over and _stopped_early(trainer),
            "environment": environment(),
            "reasons": list(dict.fromkeys([*self._reasons, *group.reasons])),
            "notes": group.notes,
        }
        return state

    def _metrics(self) -> dict[str, float]:
        """What was logged; of a validation only at the step it judged."""
        stale = set() if self._validated == self._trainer.global_step else self._judged
        return {name: float(value) for name, value in self._trainer.callback_metrics.items() if name not in stale}

    # --- after the training -------------------------------------------------------------------------------------------

    def training_ends(self) -> None:
        """Save what came out, and return when it is durable."""
        self._save(over=True)
        self._saves.finish()

    def end(self, error: BaseException | None = None) -> None:
        """Leave everything as it was found, and say how the run ended; then end the program, if it was told to."""
        if self._is_over:
            return
        self._is_over = True
        self._leave_all(error)
        if error is None and self._notice is not None and self._notice.should_save():
            obey(self._notice)  # it came after the last boundary: all is saved

    def _leave_all(self, error: BaseException | None) -> None:
        strategy = self._trainer.strategy
        if self.catalog is not None:
            turn_away_from_logs(self._trainer)
            self.catalog.__exit__(None if error is None else type(error), error, None)
        if self._notice is not None:
            self._notice.close()
        if isinstance(strategy.checkpoint_io, CheckpointReferences):
            strategy.process_dataloader, strategy.checkpoint_io = self._process, self._files
        self._watch.close()
        self._group.finish()
        self._group.close()
        for one in self._evaluations:
            one.close()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the numbers may differ from those of an unbroken run."""
        return tuple(dict.fromkeys([*self._reasons, *self._group.reasons]))


def _about(state: Mapping[str, Any]) -> dict[str, Any]:
    place, reasons = state[_OWN]["place"], state[_OWN]["reasons"]
    return {**{name: place[name] for name in ("step", "epoch", "batch")}, "exact": not reasons, "reasons": reasons}


def _stopped_early(trainer: Any) -> bool:
    """Whether a callback found that there is nothing left to learn; that time ran out is no reason not to go on."""
    return bool(trainer.should_stop) and any(getattr(one, "stopped_epoch", 0) for one in trainer.callbacks)
