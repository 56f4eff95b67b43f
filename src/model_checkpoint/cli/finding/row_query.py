"""Row query: which checkpoints or runs a search means; the language is that of :mod:`.plan.run_query`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.plan.errors import QueryInvalid
from model_checkpoint.plan.run_query import flattened, parse_query

if TYPE_CHECKING:  # a search has one or the other
    from model_checkpoint.database.local.catalog_reader import CatalogReader
    from model_checkpoint.database.summed_records import MetricSummary, RunOverview
    from model_checkpoint.engine.common.info import CheckpointInfo

T = TypeVar("T")
Row = Mapping[str, Any]


def chosen(text: str, things: Sequence[T], rows: Sequence[Row], *, names: Collection[str] | None = None) -> list[T]:
    """The things whose rows a search fits, in their order; a search that cannot be read is shown with the place.

    Args:
        text: The search.
        things: What is searched.
        rows: Each as a search sees it.
        names: What can be compared; by default all that a row has.

    Example:
        >>> chosen("loss < 1", ["a", "b"], [{"loss": 0.5}, {"loss": 2.0}])
        ['a']
    """
    known = {name for row in rows for name in row} if names is None else names
    try:
        query = parse_query(text, known)
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
        **{name: value for name, value in flattened(info.metadata).items() if not isinstance(value, Mapping)},
        **info.metrics,
        "step": info.step,
        "size": info.size_bytes,
        "name": info.prefix,
        "id": info.id,
        "tag": [*info.tags, *(["pinned"] if info.pinned else [])],
        "health": "unusable" if info.problem else "incomplete" if info.left_out else "committed",
        "text": f"{info.prefix} {info.id} {info.note}",
    }


def chosen_runs(text: str, catalog: CatalogReader) -> list[RunOverview]:
    """The runs of a catalog that a search fits, the latest start first; without a search, all."""
    from model_checkpoint.tracking.reporting.run_search import search_names, search_row

    runs, now = catalog.overviews(), catalog.now()
    measured: dict[str, list[MetricSummary]] = {run.experiment.id: [] for run in runs}
    for one in catalog.summaries(list(measured)) if runs else ():
        measured[one.experiment_id].append(one)
    savers = catalog.savers([run.newest.id for run in runs if run.newest is not None])
    rows = [
        search_row(
            run,
            now=now,
            saver=savers.get(run.newest.id, "") if run.newest is not None else "",
            summaries=measured[run.experiment.id],
        )
        for run in runs
    ]
    names = search_names(catalog.metric_names(), runs)
    return chosen(text, runs, rows, names=names)
