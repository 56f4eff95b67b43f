"""Row pages: rows in a fixed order, from where the last page ended; no page costs more than the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from model_checkpoint.database.table_rows import TableRows
from model_checkpoint.database.values.cursors import MOST, cursor_of, read_cursor
from model_checkpoint.errors import OptionInvalid

Row = Mapping[Any, Any]


def query_page(
    rows: TableRows,
    text: str,
    same: Mapping[str, Any],
    order: Sequence[str],
    *,
    after: str,
    limit: int,
) -> tuple[Sequence[Row], str]:
    """One page in descending order, and the cursor of the next; all else is as :func:`query_newest` has it."""
    if not 1 <= limit <= MOST:
        raise OptionInvalid(f"limit: must be from 1 to {MOST}, got {limit}.")
    place = read_cursor(after, len(order)) if after else ()
    found = query_newest(rows, text, same, order, place=place, most=limit + 1)
    if len(found) <= limit:
        return found, ""
    last = found[limit - 1]
    return found[:limit], cursor_of([last[column.rpartition(".")[2]] for column in order])


def query_newest(
    rows: TableRows,
    text: str,
    same: Mapping[str, Any],
    order: Sequence[str],
    *,
    place: Sequence[Any] = (),
    most: int | None = None,
) -> Sequence[Row]:
    """Rows in descending order.

    Args:
        rows: Who is asked.
        text: The question without its conditions; its columns include those of ``order``.
        same: What columns must equal; those of None may be anything.
        order: The columns that tell the rows apart.
        place: What these are in the row before the first.
        most: At most so many.
    """
    values = {name: value for name, value in same.items() if value is not None}
    wanted = [f"{name} = :{name}" for name in values]
    if place:
        wanted.append(_beyond(order))
        values |= {f"place_{n}": value for n, value in enumerate(place)}
    words = [text, *([f"WHERE {' AND '.join(wanted)}"] if wanted else [])]
    words.append("ORDER BY " + ", ".join(f"{column} DESC" for column in order))
    if most is not None:
        words.append("LIMIT :most")
        values["most"] = most
    return rows.query(" ".join(words), values)


def _beyond(order: Sequence[str], at: int = 0) -> str:
    """Rows after the given one in descending order, written so that every database walks its index."""
    column, place = order[0], f":place_{at}"
    if len(order) == 1:
        return f"{column} < {place}"
    return f"{column} <= {place} AND ({column} < {place} OR ({_beyond(order[1:], at + 1)}))"
