"""Managed checkpoints: find, delete, pin, prune and verify the checkpoints of runs, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model_checkpoint.checkpoint.catalog.best_choice import all_rows
from model_checkpoint.checkpoint.errors import CheckpointUnknown, NoExperiment
from model_checkpoint.checkpoint.keeping.apply_retention import carry_out_plan, plan_run, require_plan_holds
from model_checkpoint.checkpoint.keeping.inspection import inspect_run
from model_checkpoint.checkpoint.keeping.removal import bring_back, remove
from model_checkpoint.checkpoint.keeping.row_marks import note_row, pin_row, tag_row, untag_row
from model_checkpoint.checkpoint.keeping.unfinished import finish_removals
from model_checkpoint.checkpoint.loading.choosing import row_by_id
from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.retention.retention_plan import RetentionPlan
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.database.event_records import AuditEntry, LineageEdge
from model_checkpoint.database.records import Checkpoint, Page
from model_checkpoint.database.summed_records import ExperimentStatistics
from model_checkpoint.errors import OptionInvalid, WrongReference
from model_checkpoint.hooks import HookInfo, HookManager
from model_checkpoint.integrity import ScrubReport


class ManagedCheckpoints:
    """What a manager does with checkpoints that are saved already."""

    def __init__(self, services: Services, tracker: Any) -> None:
        self._services, self._tracker, self._begun = services, tracker, False

    # --- what it works with ------------------------------------------------------------------------------------------

    @property
    def hook_manager(self) -> HookManager:
        """Where hooks are registered."""
        return self._services.hooks

    @property
    def connection(self) -> EnhancedDatabaseConnection:
        """The catalog that checkpoints are recorded in; the tracker's, if there is one."""
        return self._services.catalog.connection

    @property
    def root(self) -> str:
        """Where the checkpoints lie."""
        return self._services.store.url

    # --- finding -----------------------------------------------------------------------------------------------------

    def list_checkpoints(
        self,
        experiment_id: str | None = None,
        checkpoint_type: str | None = None,
        best_only: bool = False,
        limit: int | None = None,
    ) -> list[Checkpoint]:
        """The checkpoints of a run, newest first."""
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise OptionInvalid(f"limit must be None or a whole number of 0 or more, got {limit!r}.")
        run = self._run_id(experiment_id)
        return self.connection.get_checkpoints_by_experiment(run, checkpoint_type, best_only, limit=limit)

    def get_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """The row of one checkpoint."""
        return row_by_id(self._services, checkpoint_id)

    def checkpoints(self) -> list[Checkpoint]:
        """Every checkpoint of the tracker's run; what strategy hooks look at."""
        return list(all_rows(self.connection, self._run_id(None)))

    def lineage(self, checkpoint_or_experiment_id: str) -> list[LineageEdge]:
        """What led to a checkpoint or run: run -> checkpoint -> run edges with the steps they branch at."""
        return self.connection.lineage(checkpoint_or_experiment_id)

    def audit(self, checkpoint_id: str | None = None, action: str | None = None, limit: int = 100) -> Page[AuditEntry]:
        """What was done, the latest first: every save, load, delete, pin, restore, retention, repair, reindex."""
        return self.connection.audit(subject=checkpoint_id, action=action, limit=limit)

    # --- keeping -----------------------------------------------------------------------------------------------------

    def delete_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """Move a checkpoint to the trash, row and files; :meth:`restore_checkpoint` undoes it within its grace."""
        self._begin()
        return remove(self._services, self._row(checkpoint_id))

    delete = delete_checkpoint

    def restore_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """Bring a deleted checkpoint back."""
        self._begin()
        row = self.connection.get_checkpoint(checkpoint_id)
        if row is None:
            raise CheckpointUnknown(f"checkpoint {checkpoint_id!r} is not in the catalog.")
        return bring_back(self._services, row)

    def pin(self, checkpoint_id: str) -> Checkpoint:
        """Protect a checkpoint from retention."""
        return pin_row(self._services, self._row(checkpoint_id), pinned=True)

    def unpin(self, checkpoint_id: str) -> Checkpoint:
        """Let it go like any other."""
        return pin_row(self._services, self._row(checkpoint_id), pinned=False)

    def tag(self, checkpoint_id: str, *tags: str) -> Checkpoint:
        """Give a checkpoint words to be found and kept by."""
        return tag_row(self._services, self._row(checkpoint_id), tags)

    def untag(self, checkpoint_id: str, *tags: str) -> Checkpoint:
        """Take words off a checkpoint."""
        return untag_row(self._services, self._row(checkpoint_id), tags)

    def note(self, checkpoint_id: str, text: str) -> Checkpoint:
        """Write a remark on a checkpoint, in place of the former; an empty one removes it."""
        return note_row(self._services, self._row(checkpoint_id), text)

    def plan(
        self, experiment_id: str | None = None, keep: Keeper | str | Sequence[Keeper | str] | None = None
    ) -> RetentionPlan:
        """Which checkpoints of a run would go and which would stay, each with its reasons; nothing is removed."""
        return plan_run(self._services, self._run_id(experiment_id), keep)

    def prune(
        self,
        experiment_id: str | None = None,
        keep: Keeper | str | Sequence[Keeper | str] | None = None,
        *,
        plan: RetentionPlan | None = None,
    ) -> RetentionPlan:
        """Carry out a plan that was looked at, or plan by ``keep`` and carry that out.

        Raises:
            PlanOutdated: What the plan stands on has changed since; nothing was removed.
            WrongReference: A keeper asks for a metric that no checkpoint has; nothing was removed.
        """
        run = self._run_id(experiment_id)
        if plan is None:
            told = plan_run(self._services, run, keep)
            if told.unranked:  # a slip of the pen must not decide what is best
                raise WrongReference(f"{self.root}: {told.unranked[0]} Nothing was removed.", self.root)
        elif keep is not None:
            raise OptionInvalid("a plan says already what to keep; give keep= or plan=, not both. Nothing was done.")
        else:
            require_plan_holds(self._services, run, plan)
            told = plan
        return carry_out_plan(self._services, run, told) or told

    def verify_experiment_integrity(self, experiment_id: str | None = None, repair: bool = False) -> ScrubReport:
        """Compare every byte of a run's checkpoints with its SHA-256; with ``repair`` mend what can be mended."""
        return inspect_run(self._services, self._run_id(experiment_id), repair=repair)

    # --- figures and hooks -------------------------------------------------------------------------------------------

    def get_experiment_statistics(self, experiment_id: str | None = None) -> ExperimentStatistics:
        """How many checkpoints a run has, their bytes, its best losses, a summary of each metric."""
        return self.connection.get_experiment_statistics(self._run_id(experiment_id))

    def get_performance_statistics(self) -> dict[str, Any]:
        """How long operations took, what the caches and hooks did, and what failed without failing a save."""
        services = self._services
        return {
            "operations": services.monitor.all_stats(),
            "caches": services.caches.global_statistics(),
            "hooks": services.hooks.get_performance_stats(),
            "troubles": services.failures.counts(),
        }

    def register_hook(self, *hook: Any, **options: Any) -> str:
        """Register a hook; see :meth:`HookManager.register_hook`."""
        return self.hook_manager.register_hook(*hook, **options)

    def unregister_hook(self, name: str) -> None:
        """Take a hook off."""
        self.hook_manager.unregister_hook(name)

    def list_hooks(self) -> list[HookInfo]:
        """The hooks there are."""
        return self.hook_manager.list_hooks()

    # --- which run ---------------------------------------------------------------------------------------------------

    def _row(self, checkpoint_id: str) -> Checkpoint:
        """The row of one that is about to be changed, as it is now, whoever changed it last."""
        return row_by_id(self._services, checkpoint_id, fresh=True)

    def _begin(self) -> None:
        """Carry on, once, with what a manager that died had begun to remove or to bring back."""
        if not self._begun:
            self._begun = True
            with self._services.failures.tolerated("removals left open"):
                finish_removals(self._services)

    def _run_id(self, experiment_id: str | None) -> str:
        if experiment_id is not None:
            return experiment_id
        if self._tracker is None:
            raise NoExperiment("which run is meant? Give a tracker to the manager, or experiment_id=.")
        found: str = self._tracker.experiment_id
        return found
