"""Run report: one run as a page of text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from model_checkpoint.database.records import Experiment
from model_checkpoint.database.summed_records import ExperimentStatistics, MetricSummary
from model_checkpoint.tracking.reporting.run_comparison import flatten_config, shown
from model_checkpoint.tracking.reporting.text_tables import Style, check_style, heading, number, table
from model_checkpoint.tracking.reporting.vitals import RunVitals

_LONGEST = 200  # characters of a setting


def report_run(
    run: Experiment, statistics: ExperimentStatistics, vitals: RunVitals, *, style: Style = "markdown"
) -> str:
    """The whole run: how it is, what it was asked to do, what it measured, what it saved."""
    check_style(style)
    title = f"# {run.name}" if style == "markdown" else run.name
    parts = [title, "", table(_facts(run, vitals), style)]
    if run.notes:
        parts += ["", heading("Notes", style), run.notes]
    settings = [["setting", "value"], *([key, _short(shown(value))] for key, value in flatten_config(run.config))]
    if run.config:
        parts += ["", heading("Settings", style), table(settings, style)]
    if statistics.metrics:
        parts += ["", heading("Metrics", style), table(_metric_rows(statistics.metrics), style)]
    if statistics.checkpoints or statistics.deleted_checkpoints:
        parts += ["", heading("Checkpoints", style), table(_checkpoint_rows(statistics), style)]
    return "\n".join(parts) + "\n"


def _short(text: str) -> str:
    """A setting that fits into a table, such as a memory plan with all its stages."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _facts(run: Experiment, vitals: RunVitals) -> list[list[str]]:
    rows = [
        ["run", run.id],
        ["project", run.project_name],
        ["status", run.status],
        ["state", f"{vitals.state.value}: {vitals.evidence}"],
        ["started", moment(run.start_time)],
    ]
    if run.end_time is not None:
        rows.append(["ended", f"{moment(run.end_time)} (after {run.end_time - run.start_time:.0f} s)"])
    rows.append(["step", str(run.step)])
    if run.tags:
        rows.append(["tags", ", ".join(run.tags)])
    return rows


def _metric_rows(metrics: Sequence[MetricSummary]) -> list[list[str]]:
    rows = [["metric", "last", "at step", "min", "at step", "max", "at step", "points", "NaN"]]
    for one in sorted(metrics, key=lambda one: one.metric_name):
        low = [number(one.min), number(one.min_step)]
        high = [number(one.max), number(one.max_step)]
        rows.append(
            [one.metric_name, number(one.last), str(one.last_step), *low, *high, str(one.count), str(one.nan_count)]
        )
    return rows


def _checkpoint_rows(statistics: ExperimentStatistics) -> list[list[str]]:
    return [
        ["checkpoints", "deleted", "bytes", "of them unique", "best loss", "best val_loss"],
        [
            str(statistics.checkpoints),
            str(statistics.deleted_checkpoints),
            str(statistics.total_bytes),
            str(statistics.unique_bytes),
            number(statistics.best_loss),
            number(statistics.best_val_loss),
        ],
    ]


def moment(at: float) -> str:
    """A time of day in UTC.

    Example:
        >>> moment(0.0)
        '1970-01-01 00:00:00 UTC'
    """
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
