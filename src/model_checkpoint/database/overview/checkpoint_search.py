"""Checkpoint search: checkpoints of all runs by health and reason, in any order, page by page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, String, and_, cast, false, func, or_, select, true

from model_checkpoint.database.catalog.catalog_part import CatalogPart, in_lists
from model_checkpoint.database.models import CheckpointRow, EdgeRow, table_of
from model_checkpoint.database.records import COMMITTED, Checkpoint, CheckpointPlace, Page
from model_checkpoint.database.values.checkpoint_scores import FLAGS
from model_checkpoint.database.values.cursors import cursor_of, read_cursor, sort_word
from model_checkpoint.database.values.row_records import checkpoint_of

SortWord = Literal["at", "-at", "step", "-step", "bytes", "-bytes", "unique", "-unique", "verified_at", "-verified_at"]
_rows, _edges = table_of(CheckpointRow), table_of(EdgeRow)
_ORDERS: dict[str, tuple[ColumnElement[Any], str]] = {  # the column, and the field that has its value
    "at": (_rows.c.created_at, "created_at"),
    "step": (_rows.c.step, "step"),
    "bytes": (_rows.c.file_size, "file_size"),
    "unique": (func.coalesce(_rows.c.unique_bytes, _rows.c.file_size), "unique_bytes"),
    "verified_at": (_rows.c.verified_at, "verified_at"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSearch:
    """Which checkpoints are meant: of one run or root, of some health, or those that nothing keeps.

    Example:
        >>> CheckpointSearch(run="r1", health=("damaged",)).unclaimed
        False
    """

    run: str | None = None
    root: str | None = None
    health: Collection[str] = ()
    pinned: bool = False  # only those
    unclaimed: bool = False  # not pinned, best, tagged, the newest, nor what a run began from
    besides: Collection[str] = ()  # ids that are not meant
    state: str = COMMITTED


class CheckpointSearchCatalog(CatalogPart):
    """Checkpoints of all runs."""

    def search_checkpoints(
        self, search: CheckpointSearch, *, sort: str = "-at", limit: int = 100, after: str = ""
    ) -> Page[Checkpoint]:
        """Checkpoints in the order of ``sort``, falling if it begins with a minus; a page at a time.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoints([Checkpoint(id=f"c{n}", experiment_id="r1", step=n) for n in range(3)])
            ...     first = db.search_checkpoints(CheckpointSearch(), sort="step", limit=2)
            ...     rest = db.search_checkpoints(CheckpointSearch(), sort="step", limit=2, after=first.next)
            ...     [one.id for one in first.items], [one.id for one in rest.items], rest.next
            (['c0', 'c1'], ['c2'], '')
        """
        word, falling = sort_word(sort, _ORDERS)
        column, field = _ORDERS[word]
        statement = select(_rows.c.id).where(*_conditions(search))
        if after:
            statement = statement.where(_beyond((column, _rows.c.id), read_cursor(after, 2), falling=falling))
        order = [one.desc() if falling else one.asc() for one in (column, _rows.c.id)]
        statement = statement.order_by(*order).limit(limit + 1)

        def work(connection: Connection) -> tuple[list[Checkpoint], bool]:
            ids = list(connection.execute(statement).scalars())  # first only ids are put in order, then rows are read
            rows = in_lists(connection, select(_rows), _rows.c.id, ids[:limit])
            known = {row.id: checkpoint_of(row._mapping) for row in rows}
            return [known[id] for id in ids[:limit]], len(ids) > limit

        found, more = self._read(work)
        return Page(found, cursor_of(_place(found[-1], field)) if more else "")

    def checkpoint_places(self, experiment_ids: Collection[str]) -> list[CheckpointPlace]:
        """Where the checkpoints of these runs lie on their tracks, by step; no more of them is read.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", step=7))
            ...     [(one.id, one.step) for one in db.checkpoint_places(["r1"])]
            [('c1', 7)]
        """
        column = _rows.c
        fields = (column.experiment_id, column.id, column.step, column.created_at, column.health, column.pinned)
        statement = select(*fields).where(column.state == COMMITTED)
        ids = dict.fromkeys(experiment_ids)
        rows = self._read(lambda connection: list(in_lists(connection, statement, column.experiment_id, ids)))
        return sorted((CheckpointPlace(*row) for row in rows), key=lambda one: (one.step, one.created_at, one.id))

    def health_counts(self, search: CheckpointSearch) -> dict[str, int]:
        """How many checkpoints have each health.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.health_counts(CheckpointSearch())
            {}
        """
        statement = select(_rows.c.health, func.count()).where(*_conditions(search)).group_by(_rows.c.health)
        rows = self._read(lambda connection: connection.execute(statement).all())
        return {health: int(count) for health, count in rows}

    def neighbours(self, checkpoint: Checkpoint) -> tuple[str | None, str | None]:
        """The ids of the checkpoints of the same run before and after one.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoints([Checkpoint(id=f"c{n}", experiment_id="r1", step=n) for n in range(3)])
            ...     db.neighbours(db.get_checkpoint("c1"))
            ('c0', 'c2')
        """
        columns = (_rows.c.step, _rows.c.created_at, _rows.c.id)
        place = (checkpoint.step, checkpoint.created_at, checkpoint.id)
        own = (_rows.c.experiment_id == checkpoint.experiment_id, _rows.c.state == COMMITTED)

        def work(connection: Connection) -> tuple[str | None, str | None]:
            found = []
            for falling in (True, False):
                order = [one.desc() if falling else one.asc() for one in columns]
                statement = select(_rows.c.id).where(*own, _beyond(columns, place, falling=falling))
                found.append(connection.execute(statement.order_by(*order).limit(1)).scalar())
            return found[0], found[1]

        return self._read(work)


def _place(row: Checkpoint, field: str) -> tuple[Any, str]:
    value = row.file_size if field == "unique_bytes" and row.unique_bytes is None else getattr(row, field)
    return (0.0 if value is None else value), row.id


def _beyond(columns: Sequence[ColumnElement[Any]], values: Sequence[Any], *, falling: bool) -> ColumnElement[bool]:
    """Rows behind the given one."""
    column, value = columns[0], values[0]
    further = column < value if falling else column > value
    if len(columns) == 1:
        return and_(further)
    return or_(further, and_(column == value, _beyond(columns[1:], values[1:], falling=falling)))


def _conditions(search: CheckpointSearch) -> list[ColumnElement[bool]]:
    column = _rows.c
    chosen: list[ColumnElement[bool]] = [column.state == search.state]
    if search.run is not None:
        chosen.append(column.experiment_id == search.run)
    if search.root is not None:
        chosen.append(column.root == search.root)
    if search.health:
        chosen.append(column.health.in_(sorted(search.health)))
    if search.pinned:
        chosen.append(column.pinned == true())
    if search.unclaimed:
        chosen += _unclaimed()
    if search.besides:
        chosen.append(column.id.not_in(sorted(search.besides)))
    return chosen


def _unclaimed() -> list[ColumnElement[bool]]:
    column, other = _rows.c, _rows.alias("newer")
    plain = [
        column.pinned == false(),
        *(column[flag] == false() for flag in FLAGS),
        cast(column.tags, String(8)) == "[]",
    ]
    begun = select(_edges.c.parent).where(_edges.c.kind == "resumed", _edges.c.parent == column.id)
    newer = select(other.c.id).where(
        other.c.experiment_id == column.experiment_id,
        other.c.state == COMMITTED,
        or_(other.c.step > column.step, and_(other.c.step == column.step, other.c.created_at > column.created_at)),
    )
    return [*plain, ~begun.exists(), newer.exists()]
