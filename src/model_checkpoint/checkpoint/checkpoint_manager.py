"""Checkpoint manager: save, load and resume the checkpoints of runs, recorded in a catalog.

Each method is a short list of steps; the steps themselves are in ``saving``, ``loading`` and ``keeping``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from model_checkpoint.checkpoint.errors import CheckpointUnknown
from model_checkpoint.checkpoint.loading.choosing import LATEST, row_by_id, rows_of_run
from model_checkpoint.checkpoint.loading.load_steps import load_row
from model_checkpoint.checkpoint.loading.resuming import ResumeReport, resume_run
from model_checkpoint.checkpoint.managed_checkpoints import ManagedCheckpoints
from model_checkpoint.checkpoint.manager_options import ManagerOptions
from model_checkpoint.checkpoint.opening import compression_of, open_services
from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.saving.background_save import CheckpointSave, SavesUnderWay, save_in_background
from model_checkpoint.checkpoint.saving.managed_save import ManagedSave
from model_checkpoint.checkpoint.saving.save_steps import save
from model_checkpoint.checkpoint.saving.state_parts import gather_parts
from model_checkpoint.database.records import Checkpoint, Experiment
from model_checkpoint.engine.jobs import followups
from model_checkpoint.options import CompressionLevel
from model_checkpoint.storage.locate import Root


class EnhancedCheckpointManager(ManagedCheckpoints):
    """The checkpoints of runs: saved durably, recorded, chosen by metric, kept by rule, resumed from.

    Args:
        experiment_tracker: The run that checkpoints are of unless another is named; they are recorded in its database.
        checkpoint_dir: A folder, or an ``s3://``, ``gs://``, ``az://`` or ``memory://`` URL.
        storage_backend: ``"native"``, ``"pytorch"``, ``"safetensors"``, a class or an instance.
        enable_compression: Compress without loss, or how hard; native backend only.
        enable_integrity_checks: Look at each checkpoint once more before it is recorded.
        enable_caching: Keep rows in memory.
        cache_size: How many.
        save_best: Never drop the best by loss, validation loss and ``best_metric`` to make room.
        save_last: Keep the newest ``max_checkpoints``; if not, only the very newest beside the best.
        save_frequency: Epochs between scheduled checkpoints, see :meth:`is_due`.
        max_checkpoints: How many of a run are kept beside the best; None keeps all.
        database_url: Where to record them without a tracker; by default ``catalog.db`` beside the checkpoints.
        enable_hooks: Whether hooks are called.
        cache_ttl: Seconds a row is believed without asking the database, though others may change it; 2 by default.
        best_metric: What ``best_metric`` means: a metric, an expression (``"f1 - 0.1*latency"``), or several with
            commas between; without it what an earlier manager of the run was told.
        keep: Keepers such as ``mc.last(3)`` or ``"last:3"``, instead of those that follow from the choices above.
        incremental: Repeat files that did not change by link; native backend only, like ``parity`` and ``mirror``.
        parity: ``"xor"`` or ``"pq"``: write files by which one or two damaged ones can be rebuilt.
        mirror: A second root, written behind each save.
        grace: Seconds for which a dropped checkpoint can be brought back; until then it takes room.

    Example:
        >>> import tempfile, numpy as np
        >>> from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker
        >>> folder = tempfile.mkdtemp()
        >>> with ExperimentTracker("baseline", database_url=f"sqlite:///{folder}/runs.db") as run:
        ...     manager = EnhancedCheckpointManager(run, f"{folder}/checkpoints")
        ...     ids = [manager.save_checkpoint({"w": np.full(3, loss)}, step=step, val_loss=loss)
        ...            for step, loss in enumerate((0.5, 0.3, 0.4))]
        ...     manager.load_checkpoint(checkpoint_type="best_val_loss")["model_state_dict"]
        {'w': array([0.3, 0.3, 0.3])}
    """

    def __init__(  # noqa: PLR0917  # the order that code written for this class knows
        self,
        experiment_tracker: Any = None,
        checkpoint_dir: Root = "checkpoints",
        storage_backend: Any = "native",
        enable_compression: bool | CompressionLevel = False,
        enable_integrity_checks: bool = True,
        enable_caching: bool = True,
        cache_size: int = 500,
        save_best: bool = True,
        save_last: bool = True,
        save_frequency: int = 5,
        max_checkpoints: int | None = 10,
        database_url: str | None = None,
        enable_hooks: bool = True,
        *,
        cache_ttl: float | None = None,
        best_metric: str | None = None,
        keep: Keeper | str | Sequence[Keeper | str] | None = None,
        incremental: bool = False,
        parity: str | None = None,
        mirror: str | None = None,
        grace: float = 3600.0,
    ) -> None:
        options = ManagerOptions(
            compression=compression_of(enable_compression),
            incremental=incremental,
            parity=parity,
            mirror=mirror,
            integrity=enable_integrity_checks,
            caching=enable_caching,
            hooks=enable_hooks,
            save_best=save_best,
            save_last=save_last,
            save_frequency=save_frequency,
            max_checkpoints=max_checkpoints,
            best_metric=best_metric,
            keep=keep,
            grace=grace,
        )
        services = open_services(
            checkpoint_dir,
            tracker=experiment_tracker,
            backend=storage_backend,
            database_url=database_url,
            options=options,
            cache_size=cache_size,
            cache_ttl=cache_ttl,
        )
        super().__init__(services, experiment_tracker)
        self._under_way = SavesUnderWay()
        if experiment_tracker is not None:
            services.catalog.know(experiment_tracker.experiment)

    # --- saving ------------------------------------------------------------------------------------------------------

    def save_checkpoint(  # noqa: PLR0917
        self,
        model: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        epoch: int | None = None,
        step: int | None = None,
        loss: float | None = None,
        val_loss: float | None = None,
        metrics: Mapping[str, float] | None = None,
        config: Mapping[str, Any] | None = None,
        notes: str = "",
        model_name: str = "",
        experiment_id: str | None = None,
        save_optimizer: bool = True,
        save_scheduler: bool = True,
        compute_checksum: bool = True,
        update_best: bool = True,
        *,
        scaler: Any = None,
        dataloader: Any = None,
        parts: Mapping[str, Any] | None = None,
        save_rng: bool = True,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        checkpoint_type: str | None = None,
        blocking: bool = True,
        lazy: bool = False,
    ) -> str | CheckpointSave:
        """Save a training state and record it; when this returns, both survive power loss. Returns the id.

        With ``blocking=False`` the state is copied and a :class:`CheckpointSave` returned, whose ``result()`` is the
        id; with ``lazy`` even the copy is made while training goes on (see ``save_async``). Any part may be what the
        engine can save: a module, a dict of NumPy or JAX arrays, an object with a ``state_dict``.

        Raises:
            HookVetoed: A hook said no (also a ``RuntimeError``); nothing was saved.
            NoExperiment: It was not said which run this is (also a ``ValueError``).
            RowRefused: The catalog does not take the row; the files were taken back too.

        Example: see :class:`EnhancedCheckpointManager`.
        """
        self._begin()
        self._under_way.raise_unseen()
        run = self._run(experiment_id)
        order = ManagedSave(
            experiment=run,
            epoch=epoch,
            step=step,
            loss=loss,
            val_loss=val_loss,
            metrics={} if metrics is None else metrics,
            config={} if config is None else config,
            notes=notes,
            model_name=model_name or (type(model).__name__ if model is not None else ""),
            checkpoint_type=checkpoint_type or ("periodic" if self.is_due(epoch) else "manual"),
            tags=tags,
            metadata={} if metadata is None else metadata,
            update_best=update_best,
            best_metric=self._services.catalog.criterion(run.id, self._services.options.best_metric),
            compute_checksum=compute_checksum,
        )
        known = {
            "model": model,
            "optimizer": optimizer if save_optimizer else None,
            "scheduler": scheduler if save_scheduler else None,
            "scaler": scaler,
            "dataloader": dataloader,
        }
        state = gather_parts(known, parts, save_rng=save_rng)
        if blocking and not lazy:
            return save(self._services, order, state)
        under_way = save_in_background(self._services, order, state, lazy=lazy)
        self._under_way.add(under_way)
        return under_way

    def is_due(self, epoch: int | None) -> bool:
        """Whether a scheduled checkpoint is due after ``epoch``.

        Example:
            >>> manager = EnhancedCheckpointManager(checkpoint_dir="memory://doc-due", database_url="sqlite://")
            >>> [epoch for epoch in range(12) if manager.is_due(epoch)]
            [0, 5, 10]
        """
        return epoch is not None and epoch % self._services.options.save_frequency == 0

    # --- loading -----------------------------------------------------------------------------------------------------

    def load_checkpoint(  # noqa: PLR0917
        self,
        checkpoint_id: str | None = None,
        experiment_id: str | None = None,
        checkpoint_type: str = LATEST,
        verify_integrity: bool = True,
        device: Any = None,
        load_optimizer: bool = True,
        load_scheduler: bool = True,
    ) -> dict[str, Any]:
        """Give a checkpoint back as plain data: ``model_state_dict`` and its kin, metrics, and where it came from.

        It is chosen by id, or of a run as ``latest``, ``best_loss``, ``best_val_loss``, ``best_metric``, or by any
        metric or expression (``"max:accuracy"``, ``"val_f1 - 0.1*latency"``). ``verify_integrity`` compares SHA-256;
        without it every byte is still compared with a faster digest.

        Raises:
            CheckpointUnknown: There is none (also a ``ValueError``).
            CorruptedCheckpoint: What is stored is not what was saved; nothing was built from it.

        Example: see :class:`EnhancedCheckpointManager`.
        """
        row = (
            row_by_id(self._services, checkpoint_id) if checkpoint_id else self._chosen(experiment_id, checkpoint_type)
        )
        wanted = {"optimizer": load_optimizer, "scheduler": load_scheduler}
        without = [name for name, asked in wanted.items() if not asked]
        return load_row(self._services, row, device=device, full=verify_integrity, without=without)

    def resume(
        self,
        model: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        *,
        scaler: Any = None,
        dataloader: Any = None,
        parts: Mapping[str, Any] | None = None,
        restore_rng: bool = True,
        experiment_id: str | None = None,
        checkpoint_type: str = LATEST,
    ) -> ResumeReport:
        """Restore everything that can be into live objects, from the newest healthy checkpoint; say what was missing.

        The report is false if the run has no checkpoint yet. ``experiment_id`` names another run to go on from.

        Raises:
            StructureMismatch: The checkpoint does not fit the objects; nothing was changed.
            NoHealthyCheckpoint: There are checkpoints, and none can be used.

        Example:
            >>> import tempfile, numpy as np
            >>> from model_checkpoint import ExperimentTracker
            >>> folder = tempfile.mkdtemp()
            >>> with ExperimentTracker("baseline", database_url=f"sqlite:///{folder}/runs.db") as run:
            ...     manager = EnhancedCheckpointManager(run, f"{folder}/checkpoints")
            ...     _ = manager.save_checkpoint({"w": np.ones(2)}, step=7)
            ...     live = {"w": np.zeros(2)}
            ...     report = manager.resume(live)
            >>> report.step, report.restored, live["w"]
            (7, ('model', 'rng'), array([1., 1.]))
        """
        known = {
            "model": model,
            "optimizer": optimizer,
            "scheduler": scheduler,
            "scaler": scaler,
            "dataloader": dataloader,
        }
        live = {name: part for name, part in known.items() if part is not None} | dict(parts or {})
        source = self._run_id(experiment_id)
        into = None if self._tracker is None else self._tracker.experiment_id
        return resume_run(self._services, source, live, wanted=checkpoint_type, into_run=into, rng=restore_rng)

    # --- its end -----------------------------------------------------------------------------------------------------

    def finish_saves(self) -> None:
        """Wait for the background saves, their parity and their mirror; raise a failure nobody has asked for."""
        self._under_way.finish()
        followups.finish(self.root)

    def close(self) -> None:
        """Finish the background saves and let go of the hooks; a catalog that is not a tracker's is closed."""
        try:
            self.finish_saves()
        finally:
            self._services.catalog.catch_up()
            self.hook_manager.close()
            if self._tracker is None:
                self.connection.close()

    dispose = close

    def __enter__(self) -> EnhancedCheckpointManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- which run ---------------------------------------------------------------------------------------------------

    def _run(self, experiment_id: str | None) -> Experiment:
        return self._services.catalog.require_run(self._run_id(experiment_id))

    def _chosen(self, experiment_id: str | None, wanted: str) -> Checkpoint:
        run = self._run_id(experiment_id)
        row = next(rows_of_run(self._services, run, wanted), None)
        if row is None:
            raise CheckpointUnknown(
                f"run {run!r} has no checkpoint that is {wanted!r}. list_checkpoints() has those there are."
            )
        return row
