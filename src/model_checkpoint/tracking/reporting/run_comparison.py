"""Run comparison: what differs between runs, and which of them is best by each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint.database.records import Experiment
from model_checkpoint.database.summed_records import MetricSummary
from model_checkpoint.plan.metric_expressions import MetricExpression
from model_checkpoint.tracking.reporting.text_tables import Style, check_style, heading, number, table


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric in every run; ``best`` is the run that came furthest in the direction in which it gets better."""

    name: str
    summaries: tuple[MetricSummary | None, ...]  # None where the run never logged it
    minimise: bool
    best: str | None  # the id of a run; None if no run logged a number

    def best_value(self, at: int) -> float | None:
        """The best value of one run, by its position."""
        summary = self.summaries[at]
        if summary is None:
            return None
        return summary.min if self.minimise else summary.max


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Runs side by side: only settings that differ, every metric."""

    runs: tuple[Experiment, ...]
    settings: Mapping[str, tuple[Any, ...]]  # dotted names; None where a run does not have one
    metrics: tuple[MetricRow, ...]

    def render(self, format: Style = "markdown") -> str:  # the name users know
        """The comparison as text."""
        check_style(format)
        names = [run.name for run in self.runs]
        labels = [run.name if names.count(run.name) == 1 else f"{run.name} ({run.id[:8]})" for run in self.runs]
        parts = [heading("Runs", format), table(self._run_rows(labels), format)]
        if self.settings:
            rows = [["setting", *labels], *([key, *map(shown, values)] for key, values in self.settings.items())]
            parts += ["", heading("Settings that differ", format), table(rows, format)]
        if self.metrics:
            parts += ["", heading("Metrics (best, then last)", format), table(self._metric_rows(labels), format)]
        return "\n".join(parts) + "\n"

    def _run_rows(self, labels: Sequence[str]) -> list[list[str]]:
        rows = [["run", "project", "status", "step", "id"]]
        for label, run in zip(labels, self.runs, strict=True):
            rows.append([label, run.project_name, run.status, str(run.step), run.id])
        return rows

    def _metric_rows(self, labels: Sequence[str]) -> list[list[str]]:
        rows = [["metric", *labels]]
        for row in self.metrics:
            cells = []
            for at, (run, summary) in enumerate(zip(self.runs, row.summaries, strict=True)):
                mark = "*" if run.id == row.best else ""
                last = "" if summary is None else f" / {number(summary.last)}"
                cells.append(f"{number(row.best_value(at))}{mark}{last}")
            rows.append([f"{row.name} ({'min' if row.minimise else 'max'})", *cells])
        return rows


def compare_runs(runs: Sequence[Experiment], summaries: Mapping[str, Sequence[MetricSummary]]) -> RunComparison:
    """Put runs side by side; ``summaries`` has what each of them logged, by its id.

    Example:
        >>> one, two = (Experiment(id=i, name=i, config={"lr": lr, "seed": 1}) for i, lr in (("a", 0.1), ("b", 0.2)))
        >>> dict(compare_runs([one, two], {}).settings)
        {'lr': (0.1, 0.2)}
    """
    flat = [dict(flatten_config(run.config)) for run in runs]
    keys = dict.fromkeys(key for config in flat for key in config)
    settings = {key: tuple(config.get(key) for config in flat) for key in keys}
    logged = [{one.metric_name: one for one in summaries.get(run.id, ())} for run in runs]
    names = sorted({name for one in logged for name in one})
    return RunComparison(
        runs=tuple(runs),
        settings={key: values for key, values in settings.items() if _differ(values)},
        metrics=tuple(_metric_row(name, runs, [one.get(name) for one in logged]) for name in names),
    )


def _metric_row(name: str, runs: Sequence[Experiment], summaries: Sequence[MetricSummary | None]) -> MetricRow:
    minimise = MetricExpression.parse(name, known=[name]).minimise
    row = MetricRow(name=name, summaries=tuple(summaries), minimise=minimise, best=None)
    ranked = [(value, at) for at in range(len(runs)) if (value := row.best_value(at)) is not None]
    if not ranked:
        return row
    # of equal ones the first run
    _, at = min(ranked) if minimise else max(ranked, key=lambda pair: (pair[0], -pair[1]))
    return MetricRow(name=name, summaries=row.summaries, minimise=minimise, best=runs[at].id)


def _differ(values: Sequence[Any]) -> bool:
    return any(shown(value) != shown(values[0]) for value in values)


def shown(value: Any) -> str:
    """A setting as text; text in quotes, so that it differs from a number.

    Example:
        >>> shown("3"), shown(3), shown(None)
        ("'3'", '3', '-')
    """
    return "-" if value is None else repr(value) if isinstance(value, str) else str(value)


def flatten_config(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested settings by their dotted names.

    Example:
        >>> flatten_config({"optimizer": {"lr": 0.1}, "seed": 1})
        [('optimizer.lr', 0.1), ('seed', 1)]
    """
    flat = []
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat += flatten_config(value, f"{prefix}{key}.")
        else:
            flat.append((f"{prefix}{key}", value))
    return flat
