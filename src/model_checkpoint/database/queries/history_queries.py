"""History queries: what came out of what, what was done and by whom."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from model_checkpoint.database.event_records import AuditEntry, LineageEdge
from model_checkpoint.database.queries.row_pages import query_page
from model_checkpoint.database.records import Page
from model_checkpoint.database.table_rows import RowCatalog
from model_checkpoint.database.values.row_records import entry_of

_ENTRIES = f"SELECT number, {', '.join(AuditEntry.__dataclass_fields__)} FROM audit_log"
_SAVERS = "SELECT subject, actor FROM audit_log WHERE action = 'save' AND subject IN :subject"
_EDGE = ", ".join(f"lineage_edges.{name}" for name in LineageEdge.__dataclass_fields__)
_ABOVE = f"""
    WITH RECURSIVE above AS (
        SELECT {_EDGE} FROM lineage_edges WHERE lineage_edges.child = :child
        UNION SELECT {_EDGE} FROM lineage_edges JOIN above ON lineage_edges.child = above.parent
    ) SELECT {", ".join(LineageEdge.__dataclass_fields__)} FROM above"""


class HistoryQueries(RowCatalog):
    """Lineage and the log."""

    def edges(self, node: str | None = None) -> list[LineageEdge]:
        """The edges that touch a run or checkpoint, or all; oldest first.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.edges("r1")
            []
        """
        return self._edges([{}] if node is None else [{"parent": node}, {"child": node}])

    def resumptions(self) -> list[LineageEdge]:
        """Which runs went on from which checkpoints, oldest first.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, LineageEdge
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.add_edge(LineageEdge(parent="r1", child="c1", kind="saved", step=100))
            ...     _ = db.add_edge(LineageEdge(parent="c1", child="r2", kind="resumed", step=100))
            ...     [one.child for one in db.resumptions()]
            ['r2']
        """
        return self._edges([{"kind": "resumed"}])

    def lineage(self, node: str) -> list[LineageEdge]:
        """All edges that lead to a run or checkpoint, oldest first: its history, back to the first run.

        Example: see :meth:`add_edge`.
        """
        found = self._read_rows(lambda rows: rows.query(_ABOVE, {"child": node}))
        return sorted((LineageEdge(**row) for row in found), key=_age)

    def _edges(self, each: Sequence[Mapping[str, Any]]) -> list[LineageEdge]:
        found = self._read_rows(lambda rows: [row for same in each for row in rows.find("lineage_edges", same)])
        return sorted({LineageEdge(**row): None for row in found}, key=_age)

    def beginnings(self, checkpoint_ids: Sequence[str]) -> dict[str, list[str]]:
        """The runs that were resumed from each of these checkpoints.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, LineageEdge
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.add_edge(LineageEdge(parent="c1", child="r2", kind="resumed", step=100))
            ...     db.beginnings(["c1", "c2"])
            {'c1': ['r2']}
        """
        found: dict[str, list[str]] = {}
        for edge in self._edges([{"kind": "resumed", "parent": list(checkpoint_ids)}]):
            found.setdefault(edge.parent, []).append(edge.child)
        return found

    def savers(self, checkpoint_ids: Collection[str]) -> dict[str, str]:
        """Who saved these checkpoints, as ``user@host:process``, as far as the trail knows.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.record_audit("save", "c1", actor="ann@lab:7")
            ...     db.savers(["c1", "c2"])
            {'c1': 'ann@lab:7'}
        """
        found = self._read_rows(lambda rows: rows.query(_SAVERS, {"subject": list(checkpoint_ids)}))
        return {row["subject"]: row["actor"] for row in found}

    def save_entries(self, checkpoint_ids: Collection[str]) -> dict[str, AuditEntry]:
        """The entries of the saves of these checkpoints, by their ids.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.record_audit("save", "c1", actor="ann")
            ...     db.save_entries(["c1", "c2"])["c1"].actor
            'ann'
        """
        same = {"action": "save", "subject": list(checkpoint_ids)}
        found = self._read_rows(lambda rows: rows.find("audit_log", same))
        return {row["subject"]: entry_of(row) for row in found}

    def audit(
        self, *, subject: str | None = None, action: str | None = None, limit: int = 100, after: str = ""
    ) -> Page[AuditEntry]:
        """The log, the latest row first, a page at a time.

        Example: see :meth:`record_audit`.
        """
        same = {"subject": subject, "action": action}
        found, more = self._read_rows(
            lambda rows: query_page(rows, _ENTRIES, same, ["number"], after=after, limit=limit)
        )
        return Page([entry_of(row) for row in found], more)


def _age(edge: LineageEdge) -> tuple[float, str, str]:
    return edge.created_at, edge.parent, edge.child
