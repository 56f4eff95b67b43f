"""Asked history: what came out of what, what was done and by whom."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from model_checkpoint.database.asking.row_pages import ask_page
from model_checkpoint.database.records import AuditEntry, LineageEdge, Page
from model_checkpoint.database.table_rows import RowCatalog

_ENTRIES = f"SELECT number, {', '.join(AuditEntry.__dataclass_fields__)} FROM audit_log"
_SAVERS = "SELECT subject, actor FROM audit_log WHERE action = 'save' AND subject IN :subject"


class AskedHistory(RowCatalog):
    """Lineage and the log."""

    def edges(self, node: str | None = None) -> list[LineageEdge]:
        """The edges that touch a run or checkpoint, or all; oldest first.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.edges("r1")
            []
        """
        sides = [{}] if node is None else [{"parent": node}, {"child": node}]
        found = self._look(lambda rows: [row for side in sides for row in rows.find("lineage_edges", side)])
        return sorted({LineageEdge(**row): None for row in found}, key=edge_age)

    def beginnings(self, checkpoint_ids: Sequence[str]) -> dict[str, list[str]]:
        """The runs that were resumed from each of these checkpoints.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, LineageEdge
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.add_edge(LineageEdge(parent="c1", child="r2", kind="resumed", step=100))
            ...     db.beginnings(["c1", "c2"])
            {'c1': ['r2']}
        """
        same = {"kind": "resumed", "parent": list(checkpoint_ids)}
        found: dict[str, list[str]] = {}
        for row in sorted(
            self._look(lambda rows: rows.find("lineage_edges", same)), key=lambda row: float(row["created_at"])
        ):
            found.setdefault(row["parent"], []).append(row["child"])
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
        found = self._look(lambda rows: rows.ask(_SAVERS, {"subject": list(checkpoint_ids)}))
        return {row["subject"]: row["actor"] for row in found}

    def audit(
        self, *, subject: str | None = None, action: str | None = None, limit: int = 100, after: str = ""
    ) -> Page[AuditEntry]:
        """The log, the latest row first, a page at a time.

        Example: see :meth:`record_audit`.
        """
        same = {"subject": subject, "action": action}
        found, more = self._look(lambda rows: ask_page(rows, _ENTRIES, same, ["number"], after=after, limit=limit))
        fields = [{name: value for name, value in row.items() if name != "number"} for row in found]
        return Page([AuditEntry(**one) for one in fields], more)


def edge_age(edge: LineageEdge) -> tuple[float, str, str]:
    """What edges are ordered by, the oldest first."""
    return edge.created_at, edge.parent, edge.child
