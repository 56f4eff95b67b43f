"""Parquet rows: rows become row groups of typed columns, where pyarrow is installed.

A column has one type, the one given or the one of the first group; a value that does not fit it exactly is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import islice
from typing import Any

from model_checkpoint.errors import CheckpointException, ExceptionType
from model_checkpoint.performance.row_formats import Row, RowRejected, bare, check_columns, csv_text


class ParquetUnavailable(CheckpointException, ImportError):
    """Parquet is written by pyarrow, which is not installed."""

    default_type = ExceptionType.VALIDATION_FAILED


def write_parquet(
    rows: Iterable[Row], sink: Any, columns: Sequence[str] | None, types: Mapping[str, type], group: int
) -> int:
    """Write row groups of ``group`` rows; returns how many rows there were."""
    arrow, writer_of = _pyarrow()
    source, count = iter(rows), 0
    first = list(islice(source, group))
    with writer_of(sink, _schema(arrow, first, columns, types)) as writer:
        for batch in _groups(first, source, group):
            writer.write_table(_table(arrow, batch, writer.schema, count))
            count += len(batch)
    return count


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise ParquetUnavailable(
            "parquet: pyarrow is not installed. `pip install pyarrow`, or export CSV or JSON lines."
        ) from error
    return pyarrow, ParquetWriter


def _groups(first: Sequence[Row], source: Iterator[Row], size: int) -> Iterator[Sequence[Row]]:
    batch = first
    while batch:
        yield batch
        batch = list(islice(source, size))


def _types(arrow: Any) -> dict[type, Any]:
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    return {**kinds, datetime: arrow.timestamp("us", tz="UTC"), date: arrow.date32(), bytes: arrow.binary()}


def _schema(arrow: Any, batch: Sequence[Row], columns: Sequence[str] | None, types: Mapping[str, type]) -> Any:
    names, kinds = list(columns or dict.fromkeys(name for row in batch for name in row)), _types(arrow)
    wrong = sorted({name for name, kind in types.items() if kind not in kinds} | (types.keys() - set(names)))
    if wrong:
        raise RowRejected(
            f"types: cannot be used for {', '.join(wrong)}; the columns are {', '.join(names) or 'none'}, and types "
            f"{', '.join(sorted(kind.__name__ for kind in kinds))}."
        )
    given = {name: kinds[kind] for name, kind in types.items()}
    return arrow.schema([(name, given.get(name) or _guess(arrow, batch, name)) for name in names])


def _guess(arrow: Any, batch: Sequence[Row], name: str) -> Any:
    """The type all values of a column have; what has no type of its own is told as text, as in CSV."""
    values = [value for row in batch if (value := bare(row.get(name))) is not None]
    found = {type(value) for value in values}
    if not found:
        return arrow.null()
    if found == {int, float}:
        return arrow.float64()
    if found == {datetime} and all(value.tzinfo is None for value in values):
        return arrow.timestamp("us")
    if len(found) > 1:
        kinds = ", ".join(sorted(kind.__name__ for kind in found))
        raise RowRejected(f"{name}: holds {kinds}, and a column has one type. Say it with types={{{name!r}: str}}.")
    return _types(arrow).get(found.pop(), arrow.string())


def _table(arrow: Any, batch: Sequence[Row], schema: Any, start: int) -> Any:
    for offset, row in enumerate(batch):
        check_columns(row, schema.names, start + offset)
    columns = [_column(arrow, [bare(row.get(field.name)) for row in batch], field, start) for field in schema]
    return arrow.Table.from_arrays(columns, schema=schema)


def _column(arrow: Any, values: list[Any], field: Any, start: int) -> Any:
    if arrow.types.is_string(field.type):
        values = [csv_text(value, field.name, start + at) for at, value in enumerate(values)]
    try:
        for value in values:
            if value is not None and not _fits(arrow, value, field.type):
                raise TypeError(f"{value!r} would not stay as it is")
        return arrow.array(values, type=field.type)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError, TypeError) as error:
        raise RowRejected(
            f"rows {start} to {start + len(values) - 1}: {field.name} does not fit {field.type}, the type of its first "
            f"rows ({error}). Say the type of the whole column with types={{{field.name!r}: ...}}."
        ) from error


def _fits(arrow: Any, value: Any, kind: Any) -> bool:
    """Whether a column of that type says exactly this value: pyarrow itself would cut 1.5 to 1 without a word."""
    if arrow.types.is_floating(kind):
        return type(value) is float or (type(value) is int and float(value) == value)
    if arrow.types.is_timestamp(kind):
        return type(value) is datetime and (value.tzinfo is not None) is (kind.tz is not None)
    exact = {arrow.int64(): int, arrow.bool_(): bool, arrow.binary(): bytes, arrow.date32(): date, arrow.string(): str}
    return type(value) is exact.get(kind)
