"""Row formats: rows become lines of CSV or of JSON. Nothing is rounded, cut or dropped.

A value no format has a word for is refused with the number of its row and the name of its column.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Protocol
from uuid import UUID

from model_checkpoint.errors import CheckpointException, ExceptionType

_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$|^$').search  # an empty text too: nothing at all is None
_NUMBERS = {math.inf: "Infinity", -math.inf: "-Infinity"}  # JSON has no words for them; these are protobuf's


class RowRejected(CheckpointException, ValueError):
    """A row does not fit the columns, or holds what the format cannot say; no file appeared."""

    default_type = ExceptionType.VALIDATION_FAILED


class Sink(Protocol):
    """Where the bytes go."""

    def write(self, data: bytes, /) -> object:
        """Take all of ``data``."""
        ...


Row = Mapping[str, Any]


def as_row(value: Any, number: int) -> Row:
    """A mapping, or the fields of a dataclass, a named tuple or a row of a database.

    Example:
        >>> as_row({"step": 1}, 0)
        {'step': 1}
    """
    if isinstance(value, Mapping):
        strange = [name for name in value if not isinstance(name, str)]
        if strange:
            raise RowRejected(f"row {number}: the name of a column is {strange[0]!r}, expected a text.")
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        fields: Row = value._asdict()
        return fields
    raise RowRejected(f"row {number}: is {type(value).__name__}, expected a mapping, a dataclass or a named tuple.")


def write_csv(rows: Iterable[Row], sink: Sink, columns: Sequence[str] | None) -> int:
    r"""Write a header and one line a row; None is an empty field, an empty text a quoted one. Returns how many rows.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> write_csv([{"a": 1, "b": None}, {"a": "x,y", "b": ""}], file, None)
        2
        >>> file.getvalue()
        b'a,b\r\n1,\r\n"x,y",""\r\n'
    """
    count, header = 0, tuple(columns or ())
    if columns is not None:
        sink.write(_csv_line(header))
    known = set(header)
    for count, row in enumerate(rows, start=1):
        if count == 1 and columns is None:
            header, known = tuple(row), set(row)
            sink.write(_csv_line(header))
        if row.keys() != known:
            check_columns(row, header, count - 1)
        sink.write(_csv_line([csv_text(row.get(name), name, count - 1) for name in header]))
    return count


def check_columns(row: Row, header: Sequence[str], number: int) -> None:
    """Raise for a row with a column that the header does not have: it would be lost."""
    extra = row.keys() - set(header)
    if extra:
        raise RowRejected(
            f"row {number}: has {', '.join(map(repr, sorted(extra)))}, which is none of the columns "
            f"{', '.join(header)}. Name all columns with columns=[...]."
        )


def _csv_line(fields: Iterable[str | None]) -> bytes:
    return (",".join(map(_quoted, fields)) + "\r\n").encode()


def _quoted(text: str | None) -> str:
    if text is None:
        return ""
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES(text) else text


def csv_text(value: Any, column: str, number: int) -> str | None:
    """The text of one field; nested values as JSON."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)  # what most fields are
    plain = plain_value(value, column, number)
    if plain is None or isinstance(plain, str):
        return plain
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return repr(plain) if isinstance(plain, (int, float)) else json.dumps(plain, ensure_ascii=False)


def write_json_lines(rows: Iterable[Row], sink: Sink) -> int:
    r"""Write one JSON object a line; NaN and the infinities as texts, since JSON has no words for them.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> write_json_lines([{"loss": float("nan"), "tags": ["a"]}], file)
        1
        >>> file.getvalue()
        b'{"loss": "NaN", "tags": ["a"]}\n'
    """
    count = 0
    for count, row in enumerate(rows, start=1):
        plain = {name: plain_value(value, name, count - 1) for name, value in row.items()}
        sink.write((json.dumps(plain, ensure_ascii=False) + "\n").encode())
    return count


def bare(value: Any) -> Any:
    """What an enum stands for, and the Python number of a scalar of NumPy or torch.

    Example:
        >>> import numpy as np
        >>> bare(np.int32(7)), bare("text")
        (7, 'text')
    """
    if isinstance(value, Enum):
        return value.value
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def plain_value(value: Any, column: str, number: int) -> Any:
    """What JSON can say of a value; raises :class:`RowRejected` when that is nothing."""
    value = bare(value)
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _NUMBERS.get(value, "NaN")
    for kinds, text_of in _PLAIN:
        if isinstance(value, kinds):
            return text_of(value)
    if isinstance(value, Mapping):
        told = {str(key): plain_value(inner, f"{column}.{key}", number) for key, inner in value.items()}
        if len(told) < len(value):
            raise RowRejected(f"row {number}: {column} has two keys that are one text, such as 1 and '1'.")
        return told
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(inner, f"{column}[{at}]", number) for at, inner in enumerate(value)]
    raise RowRejected(
        f"row {number}: {column} is {type(value).__name__}, which a row of text has no word for. "
        "Leave the column out with columns=[...], or turn it into text first."
    )


_PLAIN: tuple[tuple[tuple[type, ...], Callable[[Any], str]], ...] = (
    ((datetime, date), lambda value: str(value.isoformat())),
    ((UUID, Decimal, PurePath), str),
)
