"""Lineage rows: what came out of what: a checkpoint out of a run, a run out of a checkpoint."""

from __future__ import annotations

import dataclasses
from typing import Any

from sqlalchemy import Select, select

from model_checkpoint.database.catalog.catalog_part import CatalogPart, store_row
from model_checkpoint.database.models import EdgeRow, table_of
from model_checkpoint.database.records import LineageEdge

_table = table_of(EdgeRow)


class LineageCatalog(CatalogPart):
    """Lineage."""

    def add_edge(self, edge: LineageEdge) -> LineageEdge:
        """Note that one thing came out of another; the same edge twice is one.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.add_edge(LineageEdge(parent="r1", child="c1", kind="saved", step=100))
            ...     _ = db.add_edge(LineageEdge(parent="c1", child="r2", kind="resumed", step=100))
            ...     [(one.parent, one.child) for one in db.lineage("r2")]
            [('r1', 'c1'), ('c1', 'r2')]
        """
        row = {field.name: getattr(edge, field.name) for field in dataclasses.fields(edge)}
        self._write(lambda connection: store_row(connection, _table, row, "parent", "child", "kind"))
        return edge

    def edges(self, node: str | None = None) -> list[LineageEdge]:
        """The edges that touch a run or checkpoint, or all; oldest first.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.edges("r1")
            []
        """
        if node is None:
            return self._edges(select(_table))
        touching = {edge: None for side in ("parent", "child") for edge in self._edges(_at(side, node))}
        return sorted(touching, key=_age)

    def resumptions(self) -> list[LineageEdge]:
        """Which runs went on from which checkpoints, oldest first.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.add_edge(LineageEdge(parent="r1", child="c1", kind="saved", step=100))
            ...     _ = db.add_edge(LineageEdge(parent="c1", child="r2", kind="resumed", step=100))
            ...     [one.child for one in db.resumptions()]
            ['r2']
        """
        return self._edges(select(_table).where(_table.c.kind == "resumed"))

    def lineage(self, node: str) -> list[LineageEdge]:
        """All edges that lead to a run or checkpoint, oldest first: its history, back to the first run.

        Example: see :meth:`add_edge`.
        """
        above = _at("child", node).cte("above", recursive=True)
        above = above.union(select(_table).join(above, _table.c.child == above.c.parent))
        return self._edges(select(above))

    def _edges(self, statement: Select[Any]) -> list[LineageEdge]:
        rows = self._read(lambda connection: connection.execute(statement).mappings().all())
        return sorted((LineageEdge(**dict(row)) for row in rows), key=_age)


def _at(side: str, node: str) -> Select[Any]:
    return select(_table).where(_table.c[side] == node)


def _age(edge: LineageEdge) -> tuple[float, str, str]:
    return edge.created_at, edge.parent, edge.child
