"""Checkpoint rows: saved, found, listed newest first; newest is the highest step, then the latest commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Integer, Select, bindparam, delete, select, true

from model_checkpoint.database.catalog.catalog_part import AT_ONCE, CatalogPart, batched, in_lists
from model_checkpoint.database.catalog.checkpoint_columns import store_checkpoints
from model_checkpoint.database.catalog.paging import page_of
from model_checkpoint.database.models import CheckpointRow, table_of
from model_checkpoint.database.opening.prepared_statements import ask
from model_checkpoint.database.records import COMMITTED, Checkpoint, Page
from model_checkpoint.database.telling.told_checkpoints import ToldCheckpoints
from model_checkpoint.database.values.checkpoint_scores import FLAGS, scores_of
from model_checkpoint.database.values.cursors import cursor_of
from model_checkpoint.database.values.row_records import checkpoint_of

_table = table_of(CheckpointRow)
_NEWEST = (_table.c.step, _table.c.created_at, _table.c.id)
_BY_ID = select(_table).where(_table.c.id == bindparam("one"))
_HERE = (
    _table.c.experiment_id == bindparam("run"),
    _table.c.state == bindparam("state"),
    _table.c.root == bindparam("root"),
)
_SOME = select(_table.c.id).where(*_HERE).limit(bindparam("most", type_=Integer))
_ALL = select(_table).where(*_HERE)


class CheckpointCatalog(ToldCheckpoints, CatalogPart):
    """Checkpoints."""

    def save_checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint, in place of what was stored under its id; when this returns, power may fail.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", step=7, metrics={"acc": 0.9}))
            ...     db.get_checkpoint("c1").step
            7

        Raises:
            RowRefused: Its run is not in the catalog, or a field breaks a rule.
        """
        self.save_checkpoints([checkpoint])
        return checkpoint

    def save_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> int:
        """Store many in one transaction, all or none.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     db.save_checkpoints([Checkpoint(id=f"c{n}", experiment_id="r1", step=n) for n in range(9)])
            9
        """
        unique = {one.id: one for one in checkpoints}
        ordered = [unique[id] for id in sorted(unique)]  # the one order everybody writes in
        names = {name for one in ordered for name in scores_of(one)}
        keys = self._keys_of(names)

        def work(connection: Connection) -> int:
            for some in batched(ordered, AT_ONCE):
                store_checkpoints(connection, some, keys)
            return len(ordered)

        return self._write(work)

    def get_checkpoint(self, checkpoint_id: str) -> Checkpoint | None:
        """The checkpoint of that id, deleted or not, or None.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     print(db.get_checkpoint("nothing"))
            None
        """
        return self._read(lambda connection: _found(connection, checkpoint_id))

    def get_checkpoints(self, checkpoint_ids: Sequence[str]) -> list[Checkpoint]:
        """The checkpoints of these ids that are there, in this order.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.get_checkpoints(["nothing"])
            []
        """

        def work(connection: Connection) -> dict[str, Checkpoint]:
            rows = in_lists(connection, select(_table), _table.c.id, dict.fromkeys(checkpoint_ids))
            return {row.id: checkpoint_of(row._mapping) for row in rows}

        found = self._read(work)
        return [found[one] for one in checkpoint_ids if one in found]

    def get_checkpoints_by_experiment(
        self,
        experiment_id: str,
        checkpoint_type: str | None = None,
        best_only: bool = False,
        *,
        limit: int | None = None,
        state: str = COMMITTED,
    ) -> list[Checkpoint]:
        """Checkpoints of a run, newest first; ``best_only`` those that carry a best flag; ``state="deleted"`` others.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoints([Checkpoint(id=f"c{n}", experiment_id="r1", step=n) for n in range(3)])
            ...     [one.id for one in db.get_checkpoints_by_experiment("r1", limit=2)]
            ['c2', 'c1']
        """
        if best_only:
            return self._flagged(experiment_id, checkpoint_type, state)[:limit]
        newest = [column.desc() for column in _NEWEST]
        statement = _of_run(experiment_id, checkpoint_type, state).order_by(*newest).limit(limit)
        return self._read(lambda connection: [checkpoint_of(row) for row in connection.execute(statement).mappings()])

    def _flagged(self, experiment_id: str, checkpoint_type: str | None, state: str) -> list[Checkpoint]:
        """Those with a flag, newest first; asked for the state too, SQLite would walk through all of a run by it."""
        each = [select(_table).where(_table.c.experiment_id == experiment_id, _table.c[f] == true()) for f in FLAGS]

        def work(connection: Connection) -> list[Checkpoint]:
            return [checkpoint_of(row) for one in each for row in connection.execute(one).mappings()]

        found = {one.id: one for one in self._read(work) if one.state == state}
        fitting = [one for one in found.values() if checkpoint_type in (None, one.checkpoint_type)]
        return sorted(fitting, key=_age, reverse=True)

    def page(
        self,
        experiment_id: str,
        *,
        checkpoint_type: str | None = None,
        limit: int = 100,
        after: str = "",
        state: str = COMMITTED,
    ) -> Page[Checkpoint]:
        """Checkpoints of a run, newest first, a page at a time; no page costs more than the first.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoints([Checkpoint(id=f"c{n}", experiment_id="r1", step=n) for n in range(3)])
            ...     first = db.page("r1", limit=2)
            ...     [one.id for one in db.page("r1", limit=2, after=first.next).items]
            ['c0']
        """
        statement = page_of(_of_run(experiment_id, checkpoint_type, state), _NEWEST, after=after, limit=limit)
        rows = self._read(lambda connection: connection.execute(statement).mappings().all())
        found = [checkpoint_of(row) for row in rows[:limit]]
        return Page(found, cursor_of(_age(found[-1])) if len(rows) > limit else "")

    def crowd(self, experiment_id: str, root: str, *, beyond: int = 0, most: int | None = None) -> list[Checkpoint]:
        """The checkpoints that a run has in one root, newest first; none if they are few, or more than is bearable.

        To learn how many there are costs as much as these few, whatever lies in other roots.

        Args:
            experiment_id: The run.
            root: Where they lie.
            beyond: If there are not more than so many, none are given.
            most: If there are more than so many, none are given either.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     for n in range(3):
            ...         _ = db.save_checkpoint(Checkpoint(id=f"c{n}", experiment_id="r1", step=n, root="runs/a"))
            ...     [one.id for one in db.crowd("r1", "runs/a", beyond=2)], db.crowd("r1", "runs/a", beyond=3)
            (['c2', 'c1', 'c0'], [])
        """
        here = {"run": experiment_id, "state": COMMITTED, "root": root}

        def work(connection: Connection) -> list[Checkpoint]:
            if beyond and len(ask(connection, _SOME, {**here, "most": beyond + 1})) <= beyond:
                return []
            if most is not None and len(ask(connection, _SOME, {**here, "most": most + 1})) > most:
                return []
            return [checkpoint_of(row) for row in ask(connection, _ALL, here)]

        return sorted(self._read(work), key=_age, reverse=True)

    def latest(self, experiment_id: str, checkpoint_type: str | None = None) -> Checkpoint | None:
        """The newest checkpoint of a run, or None.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     print(db.latest("r1"))
            None
        """
        found = self.get_checkpoints_by_experiment(experiment_id, checkpoint_type, limit=1)
        return found[0] if found else None

    def forget_checkpoint(self, checkpoint_id: str) -> bool:
        """Remove the row itself, as if it had never been saved; says whether there was one.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.forget_checkpoint("nothing")
            False
        """
        remove = delete(_table).where(_table.c.id == checkpoint_id)
        return self._write(lambda connection: connection.execute(remove).rowcount > 0)


def _of_run(experiment_id: str, checkpoint_type: str | None, state: str) -> Select[Any]:
    same = select(_table).where(_table.c.experiment_id == experiment_id, _table.c.state == state)
    return same if checkpoint_type is None else same.where(_table.c.checkpoint_type == checkpoint_type)


def _age(checkpoint: Checkpoint) -> tuple[int, float, str]:
    return checkpoint.step, checkpoint.created_at, checkpoint.id


def _found(connection: Connection, checkpoint_id: str) -> Checkpoint | None:
    rows = ask(connection, _BY_ID, {"one": checkpoint_id})
    return checkpoint_of(rows[0]) if rows else None
