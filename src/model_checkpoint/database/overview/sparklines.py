"""Sparklines: a few numbers of many series, probed by index where they stand; points in between are not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Integer, Select, case, cast, func, literal, select, tuple_, union_all

from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.models import ExperimentRow, MetricPointRow, MetricSummaryRow, table_of
from model_checkpoint.database.table_rows import batched
from model_checkpoint.database.values.column_types import BigInt
from model_checkpoint.database.values.exact_numbers import FINITE

POINTS = 32
_FALL = 10  # the first tenth is left out: the fall of its values flattens the rest
_AT_ONCE = 100  # series in one statement

_runs, _points, _summaries = table_of(ExperimentRow), table_of(MetricPointRow), table_of(MetricSummaryRow)


class SparklineCatalog(CatalogPart):
    """Series at a glance."""

    def sparklines(self, series: Mapping[str, str]) -> dict[str, list[float | None]]:
        """Of each run one series, as values at steps of equal distance without the first tenth; None if not finite.

        Args:
            series: The metric to draw for each run.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, Metric
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.write_metrics([Metric("r1", "loss", float(100 - step), step) for step in range(100)])
            ...     line = db.sparklines({"r1": "loss"})["r1"]
            ...     len(line), line[0], line[-1]
            (32, 91.0, 1.0)
        """
        keys = {name: self._key_of(name) for name in set(series.values())}
        known = [(run, keys[name]) for run, name in series.items() if keys[name] is not None]

        def work(connection: Connection) -> dict[str, list[float | None]]:
            found: dict[str, list[float | None]] = {}
            for some in batched(known, _AT_ONCE):
                for run, _, value in connection.execute(_probes(some)):
                    found.setdefault(run, []).append(value)
            return found

        return self._read(work)


def _probes(series: list[tuple[str, int | None]]) -> Select[Any]:
    """The first point at or behind each of the places: an index probe for each."""
    places = union_all(*(select(literal(place, Integer).label("place")) for place in range(POINTS))).subquery("places")
    own = (_points.c.experiment == _summaries.c.experiment, _points.c.key == _summaries.c.key)
    first = select(func.min(_points.c.step)).where(*own).correlate(_summaries).scalar_subquery()
    ends = (
        select(_runs.c.id.label("run"), _summaries.c.experiment, _summaries.c.key, _summaries.c.last_step)
        .add_columns(first.label("first_step"))
        .join(_runs, _runs.c.number == _summaries.c.experiment)
        .where(tuple_(_runs.c.id, _summaries.c.key).in_(series))
        .limit(_AT_ONCE)  # else it is dissolved into the whole, and every probe looks for the first step again
        .subquery("ends")
    )
    start = ends.c.first_step + (ends.c.last_step - ends.c.first_step) / _FALL
    step = cast(start + (ends.c.last_step - start) * places.c.place / (POINTS - 1), BigInt)
    here = (_points.c.experiment == ends.c.experiment, _points.c.key == ends.c.key, _points.c.step >= step)

    value = case((_points.c.grade == FINITE, _points.c.value))
    found = select(value).where(*here).order_by(_points.c.step, _points.c.at).limit(1)
    columns = (ends.c.run, places.c.place, found.correlate(ends, places).scalar_subquery())
    return (
        select(*columns).select_from(ends.join(places, literal(1) == literal(1))).order_by(ends.c.run, places.c.place)
    )
