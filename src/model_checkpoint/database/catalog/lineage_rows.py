"""Lineage rows: what came out of what: a checkpoint out of a run, a run out of a checkpoint."""

from __future__ import annotations

import dataclasses
from typing import Any

from sqlalchemy import Select, select

from model_checkpoint.database.asking.asked_history import AskedHistory, edge_age
from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.models import EdgeRow, table_of
from model_checkpoint.database.records import LineageEdge
from model_checkpoint.database.table_rows import store_row

_table = table_of(EdgeRow)


class LineageCatalog(AskedHistory, CatalogPart):
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
        self._tell(lambda rows: store_row(rows, "lineage_edges", row, "parent", "child", "kind"))
        return edge

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
        above = select(_table).where(_table.c.child == node).cte("above", recursive=True)
        above = above.union(select(_table).join(above, _table.c.child == above.c.parent))
        return self._edges(select(above))

    def _edges(self, statement: Select[Any]) -> list[LineageEdge]:
        rows = self._read(lambda connection: connection.execute(statement).mappings().all())
        return sorted((LineageEdge(**dict(row)) for row in rows), key=edge_age)
