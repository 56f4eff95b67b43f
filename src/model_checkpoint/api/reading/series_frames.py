"""Series frames: series as binary frames, which a browser reads without parsing, or as JSON.

``MCS1``, the length of the header as 32 bits (little endian), the header (JSON, padded with blanks so that numbers
begin at a multiple of 8), then of each series four columns of 64-bit floats: x, min, max, last.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model_checkpoint.api.answers.plain_values import number_of
from model_checkpoint.api.library.shelves import Library, Shelf
from model_checkpoint.database import SeriesWindow
from model_checkpoint.database.overview.series_windows import Axis

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = b"MCS1"
MEDIA_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesWanted:
    """Which series of which runs, between which ends, for how many columns of pixels."""

    runs: tuple[str, ...]
    keys: tuple[str, ...]
    axis: Axis = "step"
    low: float | None = None
    high: float | None = None
    since: int | None = None  # step below which nothing is wanted
    columns: int = 900


@dataclass(frozen=True, slots=True)
class ReadSeries:
    """One series as it was read."""

    run: str
    key: str
    last_step: int | None
    window: SeriesWindow


def read_frames(library: Library, wanted: SeriesWanted) -> tuple[list[ReadSeries], float]:
    """Every series there is of those that are wanted, and the time by the clock of their database."""
    found, as_of = list[ReadSeries](), 0.0
    for shelf in library.shelves():
        as_of = max(as_of, shelf.connection.now())
        found.extend(_of_shelf(shelf, wanted))
    return found, as_of


def _of_shelf(shelf: Shelf, wanted: SeriesWanted) -> Iterator[ReadSeries]:
    connection = shelf.connection
    there = {(one.experiment_id, one.metric_name): one for one in connection.summaries(wanted.runs)}
    for run in wanted.runs:
        for key in wanted.keys:
            summary = there.get((run, key))
            if summary is None:
                continue
            window = connection.series_window(
                run,
                key,
                columns=wanted.columns,
                axis=wanted.axis,
                low=wanted.low,
                high=wanted.high,
                since=wanted.since,
            )
            yield ReadSeries(run, key, summary.last_step, window)


def packed(series: Sequence[ReadSeries], as_of: float, axis: Axis) -> bytes:
    """The binary form.

    Example:
        >>> import numpy as np
        >>> column = np.array([1.0, 2.0])
        >>> data = packed([ReadSeries("r1", "loss", 2, SeriesWindow(column, column, column, column, 2))], 0.0, "step")
        >>> data[:4], len(data) % 8, np.frombuffer(data[-16:]).tolist()
        (b'MCS1', 0, [1.0, 2.0])
    """
    told = [
        {"run": one.run, "key": one.key, "n": len(one.window), "count": one.window.count, "last_id": one.last_step}
        for one in series
    ]
    header = json.dumps({"as_of": as_of, "axis": axis, "series": told}, separators=(",", ":")).encode()
    header += b" " * (-(len(header) + 8) % 8)
    columns = [column.astype("<f8").tobytes() for one in series for column in _columns(one.window)]
    return b"".join([MAGIC, len(header).to_bytes(4, "little"), header, *columns])


def _columns(window: SeriesWindow) -> tuple[NDArray[np.float64], ...]:
    return window.x, window.low, window.high, window.last


def as_document(series: Sequence[ReadSeries], as_of: float) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "series": [
            {
                "run": one.run,
                "key": one.key,
                "count": one.window.count,
                "last_id": one.last_step,
                **{
                    name: [
                        None if math.isnan(value) and name != "last" else number_of(value) for value in column.tolist()
                    ]
                    for name, column in zip(("x", "min", "max", "last"), _columns(one.window), strict=True)
                },
            }
            for one in series
        ],
        "as_of": as_of,
    }
