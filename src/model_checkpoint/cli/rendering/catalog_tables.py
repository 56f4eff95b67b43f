"""Catalog tables: runs, metrics, lineage and the rows of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from model_checkpoint.cli.quantities import ago, counted, day_and_time, number, size
from model_checkpoint.cli.rendering.charts import plot, sparkline
from model_checkpoint.cli.rendering.json_text import print_json
from model_checkpoint.cli.rendering.terminal import clean, clean_lines, is_wide, lay, say, table_of, width

if TYPE_CHECKING:  # most bring the database, which most verbs do without
    from model_checkpoint.checkpoint.catalog.reindexing import ReindexReport
    from model_checkpoint.cli.finding.family_tree import FamilyMember
    from model_checkpoint.cli.finding.read_only_query import QueryResult
    from model_checkpoint.database.records import Experiment
    from model_checkpoint.database.summed_records import MetricSummary, RunOverview, Series
    from model_checkpoint.tracking import RunVitals

    RunRow = tuple[RunOverview, RunVitals, Sequence[MetricSummary]]

BUCKETS = 200  # what a chart can show
_COLOURS = {"alive": "green", "hung": "yellow", "dead": "red", "finished": "dim"}
_SHOWN = 4
_LONGEST = 60


def reindexed(report: ReindexReport, where: str, *, as_json: bool) -> None:
    """What `mckpt reindex` found."""
    if as_json:
        print_json(report)
        return
    say(
        f"{'would record' if report.dry_run else 'recorded'} {counted(report.checkpoints, 'checkpoint')} of "
        f"{counted(report.runs, 'run')} in {clean(where)}, {report.added} of them new; {counted(report.gone, 'row')} "
        f"{('has' if report.gone == 1 else 'have') if report.dry_run else 'had'} no folder any more"
    )
    for name, why in report.unreadable:
        say(f"[red]unreadable[/] {clean(name)}: {clean_lines(why)}")


def experiments(catalog: str, found: Sequence[RunRow], *, total: int, searched: bool, as_json: bool) -> None:
    """The table of `mckpt experiments`."""
    if as_json:
        print_json([_run_value(*row) for row in found])
        return
    if not found:
        say(f"{clean(catalog)}: no run {'that fits ' * searched}is recorded there{'' if searched else ' yet'}.")
        return
    wide = is_wide()
    titles = ("run", *["id"] * wide, "state", "step", "started", "saved", "metrics")
    table = table_of(*titles, right=("step", "saved"))
    for figures, vitals, summaries in found:
        run = figures.experiment
        shown = [f"{clean(one.metric_name)}={number(one.last)}" for one in summaries[:_SHOWN]]
        more = [f"+{len(summaries) - _SHOWN}"] if len(summaries) > _SHOWN else []
        row = (clean(run.name), *[clean(run.id[:8])] * wide, _state(run, vitals), str(figures.step))
        saved = str(figures.checkpoints) + f" ({size(figures.total_bytes)})" * (wide and figures.checkpoints > 0)
        table.add_row(*row, day_and_time(run.start_time), saved, " ".join([*shown, *more]))
    lay(table)
    for figures, vitals, _ in found:
        if vitals.state.value in ("hung", "dead"):
            say(f"[{_COLOURS[vitals.state.value]}]{clean(figures.experiment.name)}[/]: {clean(vitals.evidence)}")
    if total > len(found):
        say(f"{len(found)} of {counted(total, 'run')}; --limit {total} shows all")


def _state(run: Experiment, vitals: RunVitals) -> str:
    """How it is; of one that has ended, how it says it did."""
    state = vitals.state.value
    return f"[{_COLOURS[state]}]{clean(run.status) if state == 'finished' else state}[/]"


def _run_value(figures: RunOverview, vitals: RunVitals, summaries: Sequence[MetricSummary]) -> dict[str, Any]:
    told = {
        "step": figures.step,
        "state": vitals.state.value,
        "evidence": vitals.evidence,
        "checkpoints": figures.checkpoints,
        "total_bytes": figures.total_bytes,
        "metrics": {one.metric_name: one.last for one in summaries},
    }
    return {**asdict(figures.experiment), **told}


def summaries(run: Experiment, found: Sequence[MetricSummary], small: Mapping[str, Series], *, as_json: bool) -> None:
    """The metrics of a run, a line each."""
    if as_json:
        print_json(list(found))
        return
    say(f"[bold]{clean(run.name)}[/] ({clean(run.id[:8])}), step {run.step}")
    if not found:
        say("no metric was logged yet.")
        return
    table = table_of("metric", "last", "min", "max", "points", "", right=("last", "min", "max", "points"))
    for one in found:
        nan = f" [red]({one.nan_count} NaN)[/]" if one.nan_count else ""
        line = sparkline([float(value) for value in small[one.metric_name].values])
        row = (clean(one.metric_name), number(one.last), number(one.min), number(one.max), f"{one.count:,}{nan}")
        table.add_row(*row, line)
    lay(table)


def series(run: Experiment, found: Sequence[tuple[str, Series]], *, as_json: bool) -> None:
    """Some metrics of a run, drawn; or with --json all their points."""
    if as_json:
        columns = (
            {
                "metric": name,
                "steps": one.steps.tolist(),
                "times": one.timestamps.tolist(),
                "values": one.values.tolist(),
            }
            for name, one in found
        )
        print_json(list(columns))
        return
    say(f"[bold]{clean(run.name)}[/] ({clean(run.id[:8])})")
    for name, one in found:
        say(f"\n{clean(name)}, by step")
        xs, ys = [float(step) for step in one.steps], [float(value) for value in one.values]
        for line in plot(xs, ys, width=max(20, width() - 14)):
            say(f"  {line}", markup=False)


def lineage(run: Experiment, found: Sequence[FamilyMember], *, as_json: bool) -> None:
    """A run's family: each run below what it came out of."""
    if as_json:
        print_json(list(found))
        return
    for one in found:
        branch = "" if not one.depth else f"{'   ' * (one.depth - 1)}`- "
        came = (
            ""
            if not one.depth
            else f"from step {'?' if one.from_step is None else one.from_step} ({clean(one.from_checkpoint[:8])}): "
        )
        name = f"[bold]{clean(one.name)}[/]" if one.name else "[yellow]not in the catalog[/]"
        about = ", ".join(filter(None, (one.run[:8], one.status, "" if one.step is None else f"step {one.step}")))
        saved = f", {counted(one.checkpoints, 'checkpoint')}" if one.checkpoints else ""
        here = "  <- this run" if one.here else ""
        say(f"{branch}{came}{name} ({clean(about)}{saved}){here}")
    if len(found) == 1:
        say(f"resumed from nothing, and nothing was resumed from it; started {ago(run.start_time)}")


def rows(found: QueryResult, *, as_json: bool) -> None:
    """The rows of `mckpt sql`."""
    if as_json:
        print_json(found)
        return
    if not found.columns:
        say("no rows")
        return
    table = table_of(*map(clean, found.columns))
    for row in found.rows:
        table.add_row(*(_cell(value) for value in row))
    lay(table)
    more = "; there are more, --limit shows them" if found.more else ""
    say(f"{counted(len(found.rows), 'row')}{more}")


def _cell(value: Any) -> str:
    if value is None:
        return "[dim]null[/]"
    if isinstance(value, (bytes, memoryview)):
        return f"[dim]{len(bytes(value))} bytes[/]"
    text = str(value)
    return clean(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def tables(found: Sequence[tuple[str, Sequence[str]]], *, as_json: bool) -> None:
    """The tables of a catalog and their columns."""
    if as_json:
        print_json({name: list(columns) for name, columns in found})
        return
    shown = table_of("table", "columns")
    for name, columns in found:
        shown.add_row(clean(name), clean(", ".join(columns)))
    lay(shown)
