"""Series windows: one series between two ends, as the least, greatest and last value of each column of a chart.

No spike is lost and no column holds more than one mark, however many points there are; they are read a chunk at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import ColumnElement, Connection, func, select

from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.models import MetricPointRow, table_of
from model_checkpoint.database.summed_records import Series, SeriesWindow
from model_checkpoint.database.values.series_columns import fetched_series

if TYPE_CHECKING:  # most that is asked of a catalog has no arrays, and does without
    import numpy as np
    from numpy.typing import NDArray

Axis = Literal["step", "time"]
_points = table_of(MetricPointRow).c


class SeriesWindowCatalog(CatalogPart):
    """Series as charts draw them."""

    def series_window(
        self,
        experiment_id: str,
        name: str,
        *,
        columns: int,
        axis: Axis = "step",
        low: float | None = None,
        high: float | None = None,
        since: int | None = None,
    ) -> SeriesWindow:
        """One series from ``low`` to ``high``, both included, thinned where it has more than two points a column.

        With ``since`` only points of that step and later ones, also where the axis is time.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, Metric
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.write_metrics([Metric("r1", "loss", float(step % 7), step) for step in range(100)])
            ...     window = db.series_window("r1", "loss", columns=4)
            ...     window.count, window.x.tolist(), window.high.tolist()
            (100, [24.0, 49.0, 74.0, 99.0], [6.0, 6.0, 6.0, 6.0])
        """
        series = (self._number_of(experiment_id), self._key_of(name) or 0)
        return self._read(
            lambda connection: _read_window(
                connection, series, columns=columns, axis=axis, low=low, high=high, since=since
            )
        )


def _read_window(
    connection: Connection,
    series: tuple[int, int],
    *,
    columns: int,
    axis: Axis,
    low: float | None,
    high: float | None,
    since: int | None,
) -> SeriesWindow:
    column: ColumnElement[Any] = _points.step if axis == "step" else _points.at
    within = [_points.experiment == series[0], _points.key == series[1]]
    within += [] if low is None else [column >= low]
    within += [] if high is None else [column <= high]
    within += [] if since is None else [_points.step >= since]
    first, last, count = connection.execute(
        select(func.min(column), func.max(column), func.count()).where(*within)
    ).one()
    if not count:
        return _raw(axis, [])
    fields = (_points.step, _points.at, _points.grade, _points.value)
    order = (_points.experiment, _points.key, _points.step, _points.at)
    points = connection.execute(select(*fields).where(*within).order_by(*order))
    chunks = fetched_series(points.cursor)  # the driver's own: a row is a plain tuple
    if count <= 2 * columns:
        return _raw(axis, list(chunks))
    start = float(first if low is None else low)
    stop = float(last if high is None else high)
    return _thinned(axis, chunks, start, max(stop - start, 1e-9) / columns, columns)


def _axis_of(axis: Axis, chunk: Series) -> NDArray[np.float64]:
    import numpy as np

    return chunk.steps.astype(np.float64) if axis == "step" else chunk.timestamps


def _raw(axis: Axis, chunks: list[Series]) -> SeriesWindow:
    import numpy as np

    none = np.empty(0)
    x = np.concatenate([none, *(_axis_of(axis, chunk) for chunk in chunks)])
    values = np.concatenate([none, *(chunk.values for chunk in chunks)])
    order = np.argsort(x, kind="stable")
    x, values = x[order], values[order]
    return SeriesWindow(x, values, values, values, len(x))


def _thinned(axis: Axis, chunks: Iterator[Series], start: float, width: float, columns: int) -> SeriesWindow:
    import numpy as np

    x, last = np.full(columns, -np.inf), np.full(columns, np.nan)
    low, high, count = np.full(columns, np.nan), np.full(columns, np.nan), 0
    for chunk in chunks:
        here, values = _axis_of(axis, chunk), chunk.values
        column = np.clip(((here - start) / width).astype(np.int64), 0, columns - 1)
        finite = np.where(np.isfinite(values), values, np.nan)
        np.fmin.at(low, column, finite)
        np.fmax.at(high, column, finite)
        order = np.argsort(here, kind="stable")  # so that of one column the last in x is assigned last
        later = order[here[order] >= x[column[order]]]
        x[column[later]], last[column[later]] = here[later], values[later]
        count += len(values)
    used = np.flatnonzero(np.isfinite(x))
    return SeriesWindow(x[used], low[used], high[used], last[used], count)
