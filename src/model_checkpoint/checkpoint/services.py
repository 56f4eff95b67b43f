"""Services: what the steps of a manager share: where checkpoints lie, who writes them, who records and who listens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from model_checkpoint.checkpoint.catalog.catalog_rows import CachedRow
from model_checkpoint.checkpoint.catalog.checkpoint_index import CheckpointIndex
from model_checkpoint.checkpoint.manager_options import ManagerOptions
from model_checkpoint.checkpoint.tolerated_failures import ToleratedFailures
from model_checkpoint.checkpoint.trash_sweeper import TrashSweeper
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.hooks import HookContext, HookEvent, HookManager, HookResult
from model_checkpoint.performance import CacheManager, OperationMonitor
from model_checkpoint.storage.contract.store import Store

log = logging.getLogger("model_checkpoint.manager")

VETOED = "vetoed"  # an outcome of the audit trail


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything one manager works with."""

    store: Store
    backend: Any
    catalog: CheckpointIndex
    hooks: HookManager
    caches: CacheManager
    monitor: OperationMonitor
    options: ManagerOptions
    failures: ToleratedFailures
    sweeper: TrashSweeper

    def remember(self, row: Checkpoint) -> None:
        """Keep a row for whoever asks for it next."""
        if self.options.caching:
            with self.failures.tolerated("cache"):
                self.caches.checkpoints.set_metadata(row.id, CachedRow(row))

    def heard(self, event: HookEvent) -> bool:
        """Whether any hook wants to be told."""
        return self.options.hooks and self.hooks.hears(event)

    def fire(
        self, event: HookEvent, *, checkpoint_id: str | None = None, experiment_id: str | None = None, **data: Any
    ) -> HookResult | None:
        """Tell the hooks; a hook that fails is counted, one that says no is in the result."""
        result: HookResult | None = None
        if not self.heard(event):
            return result
        with self.failures.tolerated("hook manager"):
            context = HookContext(event=event, data=data, checkpoint_id=checkpoint_id, experiment_id=experiment_id)
            result = self.hooks.fire_hook(event, context)
            for failure in result.errors:
                self.failures.note(f"hook {failure.hook}", failure.error)
        return result

    def require_consent(self, result: HookResult | None, operation: str, checkpoint_id: str) -> None:
        """Raise if a hook said no, once the audit trail knows what was not done, and by whose word."""
        if result is None or result.success:
            return
        self.catalog.audit(operation, checkpoint_id, outcome=VETOED, hook=result.stopped_by)
        result.raise_if_vetoed()

    @contextmanager
    def reporting_failure(self, operation: str, checkpoint_id: str, experiment_id: str) -> Iterator[None]:
        """Let the audit trail and the hooks know of what fails, then let it fail."""
        try:
            yield
        except Exception as error:
            self.report_failure(operation, checkpoint_id, experiment_id, error)
            raise

    def report_failure(self, operation: str, checkpoint_id: str, experiment_id: str, error: Exception) -> None:
        """One failure is one entry of the audit trail and one event."""
        log.error("%s: %s failed: %s", checkpoint_id, operation, error)
        self.catalog.audit(operation, checkpoint_id, outcome="failed", error=f"{type(error).__name__}: {error}")
        self.fire(
            HookEvent.ON_ERROR,
            checkpoint_id=checkpoint_id,
            experiment_id=experiment_id,
            **{"operation": operation, "error": error},
        )

    def measured(self, operation: str) -> AbstractContextManager[None]:
        """Note how long an operation takes, whatever becomes of it."""
        return self.monitor.measure(operation)
