"""Run catalog: a run in the catalog: one experiment, its metrics, its checkpoints, where it branched off.

The catalog is an index: whatever becomes of the database, training goes on. Metrics and rows wait in a spool while it
is away; what it refuses is logged and left out. The manifests remember which run each checkpoint is of.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from model_checkpoint import forks
from model_checkpoint.checkpoint.catalog.best_choice import criteria_of, flag_anew
from model_checkpoint.checkpoint.catalog.catalog_rows import KEY, remembered, row_of
from model_checkpoint.checkpoint.catalog.checkpoint_index import AWAY
from model_checkpoint.checkpoint.keeping.apply_retention import retire
from model_checkpoint.checkpoint.manager_options import ManagerOptions
from model_checkpoint.checkpoint.opening import open_services
from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.retention.metric_keepers import KeepBest
from model_checkpoint.checkpoint.saving.managed_save import ManagedSave
from model_checkpoint.checkpoint.saving.save_timing import SaveTiming
from model_checkpoint.database import open_catalog
from model_checkpoint.database.event_records import LineageEdge
from model_checkpoint.database.records import Checkpoint, Experiment
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.jobs.job import SaveJob
from model_checkpoint.engine.jobs.running_save import SaveState
from model_checkpoint.manifest import decode_summary
from model_checkpoint.storage.contract.store import FolderStore, Store
from model_checkpoint.storage.locate import Root, open_store
from model_checkpoint.tracking import ExperimentTracker
from model_checkpoint.tracking.run_change import Status, ending

log = logging.getLogger("model_checkpoint.run")

_SECONDS = 0.5  # in which metrics are gathered: to read one from a device makes the program wait for it
_MOST = 512  # of them
_LOSSES = ("loss", "val_loss")

_left: dict[str, ExperimentTracker] = {}  # of loops that were left before their end; the next one over the run goes on


class RunCatalog:
    """One run in a catalog: a :class:`Recorder` of its checkpoints, and the way of its metrics.

    Args:
        catalog: The URL of a database, or a tracker of the caller's, who will end it.
        root: Where the checkpoints lie.
        resumed: The checkpoint the run goes on from, if there is one.
        settings: What is noted of a run that begins.
        keep: Keepers; what none of them claims of the checkpoints of this run is dropped.
        grace: Seconds for which a dropped checkpoint can be brought back.
    """

    def __init__(
        self,
        catalog: str | ExperimentTracker,
        root: Root,
        *,
        resumed: CheckpointInfo | None,
        settings: Mapping[str, Any],
        keep: Sequence[Keeper],
        grace: float,
    ) -> None:
        self._store, self._url = open_store(root), catalog if isinstance(catalog, str) else None
        self._options = ManagerOptions(
            keep=list(keep) or None, max_checkpoints=None, best_metric=_ranked_by(keep), hooks=False, caching=False,
            grace=grace,
        )  # fmt: skip
        self._open(_tracker_of(catalog, self._store, resumed, settings) if isinstance(catalog, str) else catalog)
        self._pending: list[tuple[int, dict[str, Any]]] = []
        self._step: int | None = None  # reached, and not told yet
        self._gathered_since = time.monotonic()
        self._following: list[threading.Event] = []  # one for each save on its way into the catalog
        self._turn = forks.lock()
        if resumed is not None:
            with self._services.failures.tolerated("catalog"):
                self._go_on(resumed)

    def _open(self, tracker: ExperimentTracker) -> None:
        self.tracker, self._closed = tracker, False
        self._run: Experiment = tracker.experiment
        self._services = open_services(
            self._store, tracker=tracker, backend="native", database_url=None, options=self._options, cache_size=1,
            cache_ttl=None,
        )  # fmt: skip
        self._services.catalog.know(self._run)

    def _go_on(self, resumed: CheckpointInfo) -> None:
        """Note a checkpoint whose row was never written, and where the run branched off its past."""
        connection, run = self._services.catalog.connection, self._run.id
        of = remembered(resumed).get("experiment_id") or run
        newest = connection.latest(run)
        if of == run and connection.get_checkpoint(resumed.id) is None:
            self._write(resumed)
        step = resumed.step or 0
        if of != run or (newest is not None and newest.step > step):
            connection.add_edge(LineageEdge(parent=resumed.id, child=run, kind="resumed", step=step))

    # --- metrics -----------------------------------------------------------------------------------------------------

    def log(self, metrics: Mapping[str, Any], *, step: int) -> None:
        """Gather numbers of one step."""
        self._pending.append((step, dict(metrics)))

    def reached(self, step: int) -> None:
        """Between two bodies: say how far the run is, and hand on what was gathered."""
        self._step, now = step, time.monotonic()
        if len(self._pending) >= _MOST or now - self._gathered_since > _SECONDS:
            self._gathered_since = now
            self._hand_on()

    def _hand_on(self) -> None:
        pending, self._pending = self._pending, []
        if self._step is not None:
            pending.append((self._step, {}))  # a step at which nothing was logged is a step, too
            self._step = None
        for step, metrics in pending:
            with self._services.failures.tolerated("logging of metrics"):
                self.tracker.log_metrics(metrics, step=step)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def metadata(self, parts: Sequence[str], *, epoch: int | None = None) -> Mapping[str, Any]:
        """Which run a checkpoint is of, for its manifest."""
        order = ManagedSave(experiment=self._run, epoch=epoch, checkpoint_type="periodic")
        return {KEY: order.remembered(backend="native", parts=list(parts))[KEY]}

    def follow(self, job: SaveJob) -> None:
        """Record a checkpoint as soon as it is durable, in the thread that made it so."""
        over, timing = threading.Event(), SaveTiming(ago=job.stall)
        timing.stretch("staging")
        self._following = [one for one in self._following if not one.is_set()] + [over]

        def record() -> None:
            try:
                if job.state is SaveState.DURABLE:
                    timing.stretch("writing")
                    timing.stalled(job.stall)
                    self.record(job.result(), timing)
            finally:
                over.set()

        job.at_end(record)

    def record(self, info: CheckpointInfo, timing: SaveTiming | None = None) -> None:
        """Write the row of a checkpoint, and drop what no keeper claims; nothing that fails here is raised."""
        with self._turn, self._services.failures.tolerated("catalog"):
            if self._write(info, timing):
                retire(self._services, self._run.id)

    def _write(self, info: CheckpointInfo, timing: SaveTiming | None = None) -> bool:
        """Write a row; False if it waits for the database, or what it is of was replaced meanwhile."""
        services = self._services
        summary = decode_summary(services.store.read_manifest(info.prefix), info.path)
        if summary.id != info.id:
            return False
        row = row_of(info, summary, root=services.store.url, run=self._run)
        recorded = services.catalog.record(
            row,
            self._run,
            best_metric=services.options.best_metric,
            timing=None if timing is None else timing.told(()),
        )
        if not recorded.waiting:
            self._forget_replaced(row)
        return not recorded.waiting

    def _forget_replaced(self, row: Checkpoint) -> None:
        """A step that was fallen back over and reached again: what lay in its folder is no more."""
        connection = self._services.catalog.connection
        newest = connection.get_checkpoints_by_experiment(row.experiment_id, limit=2)
        if all(one.id == row.id or one.step < row.step for one in newest):
            return
        for one in connection.get_checkpoints_by_experiment(row.experiment_id):
            same = (one.root, one.name) == (row.root, row.name)
            if same and one.id != row.id and one.created_at <= row.created_at:
                connection.delete_checkpoint(one.id)
        flag_anew(connection, row.experiment_id, criteria_of(row, self._services.options.best_metric))

    def finish(self) -> None:
        """Return when all that is durable is recorded."""
        for one in self._following:
            one.wait()

    # --- the end -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._closed and self._url is not None:  # a loop that was interrupted goes on in the same program
            self._open(ExperimentTracker.resume(self._run.id, self._url))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say how the run ended; a tracker of the caller's is the caller's to end.

        Where the loop was left before its end, only the end of the program will tell whether that was a failure.
        """
        self._hand_on()
        if self._closed or self._url is None:
            return
        if isinstance(error, GeneratorExit):
            _left[self.tracker.experiment_id] = self.tracker
            return
        self._closed = True
        self._services.catalog.close()
        _left.pop(self.tracker.experiment_id, None)
        self.tracker.close(*_ended(error))


def _ended(error: BaseException | None) -> tuple[Status, str]:
    if isinstance(error, SystemExit) and error.code:
        return "stopped", "stopped: the program was told to end"
    return ending(error)


def _ranked_by(keep: Sequence[Keeper]) -> str | None:
    """What the best one is the best by, where a keeper names another metric than the losses, which are known."""
    named = [one.criteria for one in keep if isinstance(one, KeepBest)]
    return next((one for one in named if one not in _LOSSES), None)


def _tracker_of(
    url: str, store: Store, resumed: CheckpointInfo | None, settings: Mapping[str, Any]
) -> ExperimentTracker:
    """The tracker of the run that the checkpoint is of, or of a new one."""
    place = os.path.abspath(store.url) if isinstance(store, FolderStore) else store.url
    known = None if resumed is None else remembered(resumed).get("experiment_id")
    name = os.path.basename(place.rstrip("/")) or place
    connection = open_catalog(url, lazy=True)
    try:
        run = connection.get_experiment(known) if known else _unsaved(connection, place)
        if known and run is None:  # the catalog was lost, or is another one: the manifest knows
            run = connection.save_experiment(Experiment(id=known, name=name, config={**settings, "root": place}))
        if run is not None and run.config.get("root", place) != place:
            run = None  # a copy of its checkpoints goes on elsewhere: another run, that branches off
    except AWAY:
        run = None if known is None else Experiment(id=known, name=name)  # the tracker will find it later
    finally:
        connection.close()
    if run is None:
        return ExperimentTracker(name, config={**settings, "root": place}, database_url=url)
    return _left.pop(run.id, None) or ExperimentTracker.resume(run.id, url)


def _unsaved(connection: Any, place: str) -> Experiment | None:
    """A run in this root that was killed before its first save: the same that begins again now."""
    for run in connection.list_experiments(status="running").items:
        if run.config.get("root") == place and not connection.get_checkpoints_by_experiment(run.id, limit=1):
            found: Experiment = run
            return found
    return None


def _start_anew() -> None:
    """In a forked child: the runs go on in the process that began them."""
    _left.clear()


forks.in_child(_start_anew)
