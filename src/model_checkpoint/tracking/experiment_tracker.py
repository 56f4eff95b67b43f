"""Experiment tracker: one run, its settings, its metrics and how it ended.

Logging never waits for the database and never fails because of it; see ``metric_queue`` and ``delivery``.
"""

from __future__ import annotations

import logging
import operator
import os
import time
import uuid
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any, Self

from model_checkpoint import forks
from model_checkpoint.database import EnhancedDatabaseConnection, open_catalog
from model_checkpoint.database.errors import DatabaseUnreachable
from model_checkpoint.database.opening.database_url import is_file, read_url
from model_checkpoint.database.records import Experiment, Metric
from model_checkpoint.errors import CheckpointWarning
from model_checkpoint.tracking import exit_watch
from model_checkpoint.tracking.bridges.bridge_group import BridgeGroup
from model_checkpoint.tracking.bridges.other_tracker import OtherTracker
from model_checkpoint.tracking.bridges.tracker_names import find_trackers
from model_checkpoint.tracking.delivery import CHANGE, REFUSALS, RUN, Delivery, Tally
from model_checkpoint.tracking.errors import ExperimentUnknown, MetricRefused
from model_checkpoint.tracking.metric_queue import Logged, MetricQueue
from model_checkpoint.tracking.metric_values import MetricReader
from model_checkpoint.tracking.reporting.run_comparison import RunComparison, compare_runs
from model_checkpoint.tracking.reporting.run_report import report_run
from model_checkpoint.tracking.reporting.text_tables import Style
from model_checkpoint.tracking.reporting.vitals import RunVitals, judge_run
from model_checkpoint.tracking.run_change import RunChange, Status, check_status, ending, read_settings, read_tags
from model_checkpoint.tracking.spool import Spool
from model_checkpoint.tracking.tracker_options import TrackerOptions

log = logging.getLogger("model_checkpoint.tracking")

DATABASE_URL = "sqlite:///experiments.db"
_FIRST_STEP, _LAST_STEP = -(1 << 63), (1 << 63) - 1


class ExperimentTracker:
    """One run in the catalog. Metrics are logged through a queue; :meth:`flush` waits for them and tells the truth.

    As a context manager it marks the run completed at the end, and failed after an exception.

    Args:
        experiment_name: What people call the run.
        project_name: What runs are grouped by.
        tags: Words to find it by.
        config: Its settings, plain data.
        database_url: A SQLite file, or a PostgreSQL or MySQL database.
        notes: Free text.
        bridges: Other trackers that metrics are written through to: ``"mlflow"``, ``"wandb"``, ``"trackio"``,
            ``"tensorboard"``, or an :class:`OtherTracker`. None of them ever holds up the training.
        options: How metrics travel.

    Example:
        >>> import tempfile
        >>> url = f"sqlite:///{tempfile.mkdtemp()}/experiments.db"
        >>> with ExperimentTracker("baseline", "digits", config={"lr": 0.1}, database_url=url) as tracker:
        ...     for step in range(3):
        ...         tracker.log_metrics({"loss": 1.0 / (step + 1)}, step=step)
        >>> [round(point.metric_value, 2) for point in tracker.get_metrics("loss")]
        [1.0, 0.5, 0.33]
        >>> tracker.experiment.status
        'completed'
    """

    def __init__(
        self,
        experiment_name: str = "experiment",
        project_name: str = "default",
        tags: Iterable[str] = (),
        config: Mapping[str, Any] | None = None,
        database_url: str = DATABASE_URL,
        *,
        notes: str = "",
        bridges: Sequence[Any] = (),
        options: TrackerOptions = TrackerOptions(),  # noqa: B008  # frozen
    ) -> None:
        others = find_trackers(bridges)
        run = Experiment(
            id=uuid.uuid4().hex,
            name=experiment_name,
            project_name=project_name,
            tags=read_tags(tags),
            config=read_settings(config or {}),
            notes=notes,
        )
        self._open(run, database_url, options)
        self._pid = os.getpid()
        self._delivery.record(RUN, asdict(run))
        self._begin(others, first_step=0)

    @classmethod
    def resume(
        cls,
        experiment_id: str,
        database_url: str = DATABASE_URL,
        *,
        bridges: Sequence[Any] = (),
        options: TrackerOptions = TrackerOptions(),  # noqa: B008  # frozen
    ) -> Self:
        """Go on with a run: it is running again, and steps that are not given go on behind the last one.

        So does the run of each other tracker that ``bridges`` lead to.

        Raises:
            ExperimentUnknown: The catalog has no such run.

        Example:
            >>> import tempfile
            >>> url = f"sqlite:///{tempfile.mkdtemp()}/experiments.db"
            >>> with ExperimentTracker("baseline", database_url=url) as first:
            ...     first.log_metrics({"loss": 0.5}, step=7)
            >>> with ExperimentTracker.resume(first.experiment_id, url) as again:
            ...     again.log_metrics({"loss": 0.4})
            >>> [point.step for point in again.get_metrics("loss")]
            [7, 8]
        """
        tracker = cls._attached(experiment_id, database_url, options, bridges)
        tracker._pid = os.getpid()
        tracker._change(RunChange(fields={"status": "running", "end_time": None}))
        return tracker

    @classmethod
    def join(
        cls,
        experiment_id: str,
        database_url: str = DATABASE_URL,
        *,
        options: TrackerOptions = TrackerOptions(),  # noqa: B008  # frozen
    ) -> Self:
        """Log to a run that another process runs: how it is and how it ends, only that one says.

        Raises:
            ExperimentUnknown: The catalog has no such run.

        Example:
            >>> import tempfile
            >>> url = f"sqlite:///{tempfile.mkdtemp()}/experiments.db"
            >>> with ExperimentTracker("baseline", database_url=url) as first:
            ...     with ExperimentTracker.join(first.experiment_id, url) as other:
            ...         other.log_metrics({"rank1/loss": 0.5}, step=7)
            ...     first.experiment.status
            'running'
        """
        return cls._attached(experiment_id, database_url, options)

    @classmethod
    def _attached(
        cls, experiment_id: str, database_url: str, options: TrackerOptions, bridges: Sequence[Any] = ()
    ) -> Self:
        tracker, others = cls.__new__(cls), find_trackers(bridges)
        tracker._open(Experiment(id=experiment_id, name=experiment_id), database_url, options)
        tracker._begin(others, first_step=tracker._find())
        return tracker

    def _open(self, run: Experiment, database_url: str, options: TrackerOptions) -> None:
        self._run, self._closed = run, False
        self._pid = 0  # of the process that says how the run is
        url = read_url(database_url)
        # of this moment: a program may change its folder before the database is back
        place = url.render_as_string() if is_file(url) else database_url
        self.spool_folder = options.spool_home(place)
        spool = Spool(f"{self.spool_folder}/runs", limit=options.spool_bytes)
        self._delivery = Delivery(open_catalog(place, lazy=True, notify=options.notify), spool)
        self._options, self._reader, self._steps = options, MetricReader(), forks.lock()

    def _begin(self, others: Sequence[OtherTracker], *, first_step: int) -> None:
        self._next_step = first_step
        self.bridges = BridgeGroup(others, self._run, patience=self._options.bridge_seconds)
        self._last_step: int | None = None
        self._beaten = float("-inf")
        options = self._options
        self._queue = MetricQueue(
            self._deliver,
            idle_seconds=options.beat_seconds,
            capacity=options.queue_points,
            when_full=options.when_full,
        )
        self._queue.start()
        exit_watch.watch(self)

    def _find(self) -> int:
        """Look the run up, and tell where its steps go on."""
        try:
            found = self.connection.get_experiment(self.experiment_id)
        except DatabaseUnreachable as error:
            warnings.warn(
                CheckpointWarning(
                    f"run {self.experiment_id}: the database is away, so its past is not known here; what is logged "
                    f"waits in {self.spool_folder}, and steps that are not given begin with 0. {error}"
                ),
                stacklevel=4,
            )
            return 0
        if found is None:
            raise ExperimentUnknown(
                f"run {self.experiment_id!r}: the catalog has none of that id. Look it up, or begin a new run."
            )
        self._run = found
        logged = [one.last_step for one in self.connection.summaries(found.id)]
        return max([found.step, *logged]) + 1 if logged else found.step

    # --- what the run is ---------------------------------------------------------------------------------------------

    @property
    def experiment_id(self) -> str:
        """The id to resume by, and to find its checkpoints by."""
        return self._run.id

    @property
    def experiment(self) -> Experiment:
        """The run as the catalog has it; as it was last said here, while the database is away."""
        try:
            return self.connection.get_experiment(self.experiment_id) or self._run
        except DatabaseUnreachable:
            return self._run

    @property
    def connection(self) -> EnhancedDatabaseConnection:
        """The database of this run, to be shared; each call raises ``DatabaseUnreachable`` while it is away."""
        return self._delivery.connection

    def log_hyperparameters(self, settings: Mapping[str, Any]) -> None:
        """Add to the settings of the run; a name that was there gets the new value."""
        self._change(RunChange(config=read_settings(settings)))

    def add_tags(self, *tags: str) -> None:
        """Add words to find the run by; those it has already change nothing."""
        self._change(RunChange(add_tags=read_tags(tags)))

    def remove_tags(self, *tags: str) -> None:
        """Remove words; those it does not have change nothing."""
        self._change(RunChange(remove_tags=read_tags(tags)))

    def set_notes(self, notes: str) -> None:
        """Replace the free text."""
        self._change(RunChange(fields={"notes": notes}))

    def set_status(self, status: Status, note: str = "") -> None:
        """Say how the run is, and why if that is to be noted; any but ``"running"`` stamps the time of its end."""
        check_status(status)
        end = None if status == "running" else time.time()
        self._change(RunChange(fields={"status": status, "end_time": end}, add_note=note))

    def _change(self, change: RunChange) -> None:
        self._delivery.record(CHANGE, {"id": self.experiment_id, "change": asdict(change)})
        self._run = change.made(self._run)
        self.bridges.tell(self._run)

    # --- what the run measures ---------------------------------------------------------------------------------------

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log numbers of one step; costs microseconds, whatever the database does.

        Args:
            metrics: Numbers by name; tensors and arrays of one element are numbers, and are read before this returns.
                NaN and infinities are kept. All are kept as 64-bit floats.
            step: Which step; one after the highest so far without.

        Raises:
            MetricRefused: A name, value or step cannot be kept; nothing of the call was logged.
        """
        values = self._reader.read(metrics)
        with self._steps:
            if step is None:
                step = self._next_step
            elif type(step) is not int or not _FIRST_STEP <= step <= _LAST_STEP:
                step = _whole(step)
            if step >= self._next_step:
                self._next_step = step + 1
            self._last_step = step
        self._queue.put(Logged(time.time(), step, values))

    def flush(self, timeout: float | None = None) -> Tally:
        """Wait until everything logged so far is safe, and tell where it is; a database that is back is used at once.

        Raises:
            FlushTimeout: Not within ``timeout`` seconds; it goes on.
        """
        self._queue.flush(timeout)
        return self.tally()

    def tally(self) -> Tally:
        """Where the points of this process are, as far as they have come."""
        delivered = self._delivery.tally()
        return replace(delivered, dropped=delivered.dropped + self._queue.dropped)

    def _deliver(self, batch: Sequence[Logged], urgent: bool) -> None:
        """In the thread of the queue: write, and say that the run lives."""
        mine, now = os.getpid() == self._pid, time.monotonic()
        # a durable sign of life takes along what was written before; who gives none writes durably at once
        self._delivery.deliver(self.experiment_id, batch, urgent=urgent, durable=not mine)
        if mine and (urgent or now - self._beaten >= self._options.beat_seconds):
            self._beaten = now
            self._delivery.beat(self.experiment_id, self._last_step, durable=urgent)
        self.bridges.put(batch)

    def get_metrics(self, metric_name: str | None = None, step_range: tuple[int, int] | None = None) -> list[Metric]:
        """What was logged so far, by step and time; of one metric and from the first to the last step, if given."""
        self._queue.flush()
        return list(self.connection.get_metrics(self.experiment_id, metric_name, step_range))

    # --- what people read --------------------------------------------------------------------------------------------

    def vitals(self, **limits: float) -> RunVitals:
        """Whether the run lives, hangs, is dead or finished; see :func:`judge_run`."""
        return judge_run(self.experiment, self.connection.now(), **limits)

    def compare(self, runs: Sequence[str]) -> RunComparison:
        """This run beside others, by their ids: settings that differ, every metric, and who is best by it."""
        self._queue.flush()
        ids = dict.fromkeys([self.experiment_id, *runs])
        found = {one: self.connection.get_experiment(one) for one in ids}
        missing = [one for one, run in found.items() if run is None]
        if missing:
            raise ExperimentUnknown(f"run {missing[0]!r}: the catalog has none of that id. Look it up.")
        rows = [run for run in found.values() if run is not None]
        return compare_runs(rows, {one: self.connection.summaries(one) for one in ids})

    def generate_report(self, format: Style = "markdown") -> str:  # the name users know
        """The whole run as a page of ``"markdown"`` or ``"text"``."""
        self._queue.flush()
        statistics = self.connection.get_experiment_statistics(self.experiment_id)
        return report_run(self.experiment, statistics, self.vitals(), style=format)

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self, status: Status = "completed", note: str = "") -> None:
        """Bring everything on, mark the run as ended unless it is already, and end the thread.

        The connection stays open for reading. In a forked child only its own metrics are brought on: the run goes on in
        the process that began it. Warns of what is not in the database.
        """
        if self._closed:
            return
        self._closed = True
        exit_watch.forget(self)
        self._queue.close()
        if os.getpid() == self._pid and self._run.status == "running":
            self._mark(status, note)
        self.bridges.close(self._run)
        self._delivery.close()
        tally = self.tally()
        if not tally:
            warnings.warn(
                CheckpointWarning(
                    f"run {self.experiment_id}: {tally.spooled} points wait in {self.spool_folder} for the database, "
                    f"{tally.refused} were refused by it, {tally.dropped} were dropped.",
                    report=tally,
                ),
                stacklevel=2,
            )

    dispose = close

    def _mark(self, status: Status, note: str) -> None:
        """The last thing said about the run; nobody is there any more to be told that it was refused."""
        try:
            self.set_status(status, note)
        except REFUSALS as error:
            log.error("run %s: could not be marked as %s: %s", self.experiment_id, status, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(*ending(error))

    def before_exit(self) -> None:
        """The program ends: bring on what was logged; more may come."""
        self._queue.flush()
        self.bridges.hurry()

    def at_exit(self) -> None:
        """The program has ended without closing the run."""
        error = exit_watch.uncaught()
        self.close(*(("stopped", "the program ended without closing the run") if error is None else ending(error)))


def _whole(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        number = None
    if number is None or not _FIRST_STEP <= number <= _LAST_STEP:
        raise MetricRefused(f"step: must be a whole number of 64 bits, got {step!r:.40}. Nothing was logged.")
    return number
