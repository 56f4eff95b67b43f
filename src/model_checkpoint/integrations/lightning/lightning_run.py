"""Lightning run: the callback a user adds to the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.retention.metric_keepers import KeepBest
from model_checkpoint.integrations.lightning.checkpoint_references import CheckpointReferences
from model_checkpoint.integrations.lightning.fit_session import FitSession
from model_checkpoint.integrations.lightning.namespaces import callback_class
from model_checkpoint.integrations.lightning.trainer_checks import require_plain_batches
from model_checkpoint.integrations.training_options import TrainingOptions
from model_checkpoint.storage.locate import Root

if TYPE_CHECKING:  # brings SQLAlchemy
    from model_checkpoint.tracking import ExperimentTracker


class LightningRun:
    """A callback with which ``trainer.fit`` goes on where the last process was, and ends as if it had never ended.

    It takes the place of ``ModelCheckpoint`` (which may stay beside it) and of ``ckpt_path``. Saves happen between two
    batches, where the optimizer stepped, in the background; after each validation, so that its metrics belong to the
    checkpoint; and at the end. ``trainer.test(ckpt_path="best")`` takes the best by the first ``mc.best`` of ``keep``.

    Args:
        root: Where checkpoints go: a folder or URL.
        every: Steps of the trainer (``trainer.global_step``) between two saves; None saves only after validations, at
            the end and when the program is told to end.
        keep: Keepers, e.g. ``[mc.last(3), mc.best("val_loss", 2)]``; without any, all checkpoints stay.
        catalog: The URL of a database, or an ExperimentTracker: what is logged and every checkpoint goes there.
        grace: Seconds for which a dropped checkpoint can be brought back.
        deadline: Seconds between SIGTERM and the end of the process, as the scheduler grants them.

    Raises:
        TrainerUnknown: this version of Lightning, or this way of training, is not known to resume exactly.

    Example:
        >>> run = LightningRun("runs/a", every=500)
        >>> # Trainer(max_epochs=3, callbacks=[run]).fit(model, loader)
        >>> run.resumed_from, run.exact
        (None, True)
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Make it a callback of the Lightning this program uses."""
        made: Self = object.__new__(callback_class(cls))
        return made

    def __init__(
        self,
        root: Root,
        *,
        every: int | None = 500,
        keep: Sequence[Keeper] = (),
        catalog: str | ExperimentTracker | None = None,
        grace: float = 3600.0,
        deadline: float = 30.0,
    ) -> None:
        self._options = TrainingOptions(
            root=root, every=every, keep=tuple(keep), catalog=catalog, grace=grace, deadline=deadline
        )
        self._session: FitSession | None = None

    @property
    def resumed_from(self) -> int | None:
        """The step the newest fit went on from; None if it began anew."""
        return None if self._session is None else self._session.resumed_from

    @property
    def opening(self) -> str:
        """In one line, what the newest fit went on from, and what it fell back over."""
        return "" if self._session is None else self._session.opening

    @property
    def exact(self) -> bool | tuple[str, ...]:
        """True, or the reasons why the numbers may differ from those of an unbroken run."""
        return True if self._session is None else self._session.reasons or True

    @property
    def tracker(self) -> ExperimentTracker | None:
        """The newest fit in its catalog; None without a catalog."""
        catalog = None if self._session is None else self._session.catalog
        return None if catalog is None else catalog.tracker

    @property
    def best_model_path(self) -> str:
        """What Lightning takes for ``ckpt_path="best"``: a reference to the best by the first ``mc.best``."""
        best = next((one for one in self._options.keep if isinstance(one, KeepBest)), None)
        return "" if best is None else f"{self._options.root}@best:{best.criteria}"

    # --- the hooks of a callback --------------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before Lightning restores anything."""
        self._session = self._session if stage != "fit" else None
        if stage == "fit" and not trainer.fast_dev_run:  # which leaves no trace
            self._session = FitSession(trainer, self._options)
            self._session.begin()
        elif not isinstance(trainer.strategy.checkpoint_io, CheckpointReferences):
            trainer.strategy.checkpoint_io = CheckpointReferences(trainer.strategy.checkpoint_io, None)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """After the optimizers were made."""
        if self._session is not None:
            self._session.optimizers_made()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """After Lightning restored all it restores."""
        require_plain_batches(trainer)
        if self._session is not None:
            self._session.training_begins()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A batch is there."""
        if self._session is not None:
            self._session.body_begins()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """It was trained on."""
        if self._session is not None:
            self._session.body_ends()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """A validation begins."""
        if self._session is not None:
            self._session.validation_begins()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """A validation is over."""
        if self._session is not None:
            self._session.validation_ends()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """An epoch is over."""
        if self._session is not None:
            self._session.epoch_ends()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """All epochs are over."""
        if self._session is not None:
            self._session.training_ends()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """A step may be half done: nothing is saved."""
        if self._session is not None:
            self._session.end(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The trainer is done with this call."""
        if stage == "fit" and self._session is not None:
            self._session.end()
        elif isinstance(io := trainer.strategy.checkpoint_io, CheckpointReferences):
            trainer.strategy.checkpoint_io = io.inner
