"""Row query: which checkpoints or runs a search means; the language is that of :mod:`.plan.run_query`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.plan.errors import QueryInvalid
from model_checkpoint.plan.run_query import parse_query

if TYPE_CHECKING:  # brings SQLAlchemy
    from model_checkpoint.database.records import Experiment, MetricSummary
    from model_checkpoint.tracking import RunVitals

T = TypeVar("T")
Row = Mapping[str, Any]

_STALLED = "stalled"  # what the dashboard calls a run that hangs


def chosen(text: str, things: Sequence[T], rows: Sequence[Row]) -> list[T]:
    """The things whose rows a search fits, in their order; a search that cannot be read is shown with the place.

    Example:
        >>> chosen("loss < 1", ["a", "b"], [{"loss": 0.5}, {"loss": 2.0}])
        ['a']
    """
    names = {name for row in rows for name in row}
    try:
        query = parse_query(text, names)
    except QueryInvalid as error:
        mark = f"  {text}\n  {' ' * error.at}{'^' * max(1, error.length)}"
        raise OptionInvalid(f"--query: {error}\n{mark}") from error
    return [thing for thing, row in zip(things, rows, strict=True) if query.matches(row)]


def checkpoint_row(info: CheckpointInfo) -> Row:
    """A checkpoint as a search sees it: its metrics and metadata by name, and the usual fields.

    Example:
        >>> import model_checkpoint as mc
        >>> row = checkpoint_row(mc.save("memory://doc-row", {"a": 1}, step=7, metrics={"loss": 0.5}))
        >>> row["step"], row["loss"], row["health"]
        (7, 0.5, 'committed')
    """
    return {
        **dict(_flat(info.metadata)),
        **info.metrics,
        "step": info.step,
        "size": info.size_bytes,
        "name": info.prefix,
        "id": info.id,
        "tag": [*info.tags, *(["pinned"] if info.pinned else [])],
        "health": "unusable" if info.problem else "incomplete" if info.left_out else "committed",
        "text": f"{info.prefix} {info.id} {info.note}",
    }


def run_row(run: Experiment, vitals: RunVitals, summaries: Sequence[MetricSummary]) -> Row:
    """A run as a search sees it: metrics as they were last, ``best.`` metrics, settings, and the usual fields."""
    from model_checkpoint.cli.finding.metric_history import minimises

    state = vitals.state.value
    return {
        **dict(_flat(run.config)),
        **{f"best.{one.metric_name}": one.min if minimises(one.metric_name) else one.max for one in summaries},
        **{one.metric_name: one.last for one in summaries},
        "step": run.step,
        "name": run.name,
        "id": run.id,
        "experiment": run.project_name,
        "tag": list(run.tags),
        "status": [run.status, state, *([_STALLED] if state == "hung" else [])],
        "text": f"{run.name} {run.id} {run.notes}",
    }


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Settings inside settings by their dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
