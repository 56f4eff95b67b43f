"""Checkpoint queries: by id, newest first, the best; newest is the highest step, then the latest commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model_checkpoint.database.queries.row_pages import query_newest, query_page
from model_checkpoint.database.records import COMMITTED, Checkpoint, CheckpointName, Page
from model_checkpoint.database.table_rows import RowCatalog, TableRows
from model_checkpoint.database.values.checkpoint_scores import FLAGS
from model_checkpoint.database.values.exact_numbers import NOT_A_NUMBER, joined
from model_checkpoint.database.values.row_records import CHECKPOINT_COLUMNS, checkpoint_of
from model_checkpoint.errors import OptionInvalid

_NEWEST = ("step", "created_at", "id")
_WHOLE = f"SELECT {', '.join(CHECKPOINT_COLUMNS)} FROM checkpoints"
_SOME = (
    "SELECT id FROM checkpoints WHERE experiment_id = :experiment_id AND state = :state AND root = :root LIMIT :most"
)
_NAMES = "SELECT id, experiment_id, name FROM checkpoints WHERE root = :root AND state = :state"
_SCORES = {"min": "grade, value", "max": "grade DESC, value DESC"}
_RANKED = """SELECT checkpoint_id, grade, value FROM checkpoint_metrics
    WHERE experiment_id = :experiment_id AND checkpoint_metrics.key = :key AND grade < :grade
    ORDER BY {}, step DESC, created_at DESC, checkpoint_id DESC LIMIT :most"""


class CheckpointQueries(RowCatalog):
    """Checkpoints."""

    def get_checkpoint(self, checkpoint_id: str) -> Checkpoint | None:
        """The checkpoint of that id, deleted or not, or None.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     print(db.get_checkpoint("nothing"))
            None
        """
        found = self._read_rows(lambda rows: rows.find("checkpoints", {"id": checkpoint_id}))
        return checkpoint_of(found[0]) if found else None

    def get_checkpoints(self, checkpoint_ids: Sequence[str]) -> list[Checkpoint]:
        """The checkpoints of these ids that are there, in this order.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.get_checkpoints(["nothing"])
            []
        """
        rows = self._read_rows(lambda rows: rows.find("checkpoints", {"id": list(checkpoint_ids)}))
        found = {row["id"]: checkpoint_of(row) for row in rows}
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
        same = {"experiment_id": experiment_id, "state": state, "checkpoint_type": checkpoint_type}
        found = self._read_rows(lambda rows: query_newest(rows, _WHOLE, same, _NEWEST, most=limit))
        return [checkpoint_of(row) for row in found]

    def _flagged(self, experiment_id: str, checkpoint_type: str | None, state: str) -> list[Checkpoint]:
        """Those with a flag, newest first; asked for the state too, SQLite would walk through all of a run by it."""
        each = [{"experiment_id": experiment_id, flag: True} for flag in FLAGS]
        rows = self._read_rows(lambda rows: [row for same in each for row in rows.find("checkpoints", same)])
        found = {row["id"]: checkpoint_of(row) for row in rows if row["state"] == state}
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
        same = {"experiment_id": experiment_id, "state": state, "checkpoint_type": checkpoint_type}
        found, more = self._read_rows(lambda rows: query_page(rows, _WHOLE, same, _NEWEST, after=after, limit=limit))
        return Page([checkpoint_of(row) for row in found], more)

    def latest(self, experiment_id: str, checkpoint_type: str | None = None) -> Checkpoint | None:
        """The newest checkpoint of a run, or None.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     print(db.latest("r1"))
            None
        """
        return next(iter(self.get_checkpoints_by_experiment(experiment_id, checkpoint_type, limit=1)), None)

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
        here = {"experiment_id": experiment_id, "state": COMMITTED, "root": root}

        def work(rows: TableRows) -> list[Checkpoint]:
            if beyond and len(rows.query(_SOME, {**here, "most": beyond + 1})) <= beyond:
                return []
            if most is not None and len(rows.query(_SOME, {**here, "most": most + 1})) > most:
                return []
            return [checkpoint_of(row) for row in rows.find("checkpoints", here)]

        return sorted(self._read_rows(work), key=_age, reverse=True)

    def names_in(self, root: str) -> list[CheckpointName]:
        """What the checkpoints in a root are called, of whatever run; no more of them is read.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.names_in("runs/a")
            []
        """
        rows = self._read_rows(lambda rows: rows.query(_NAMES, {"root": root, "state": COMMITTED}))
        return [CheckpointName(row["id"], row["experiment_id"], row["name"]) for row in rows]

    def best(self, experiment_id: str, metric: str, direction: str = "min", k: int = 1) -> list[Checkpoint]:
        """The ``k`` best checkpoints of a run by a metric, best first; among equals the newest, NaN not at all.

        ``loss`` and ``val_loss`` are metrics too. What is asked for costs, not how many checkpoints there are.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     for step, acc in enumerate((0.7, 0.9, 0.8)):
            ...         _ = db.save_checkpoint(Checkpoint(id=f"c{step}", experiment_id="r1", metrics={"acc": acc}))
            ...     [one.id for one in db.best("r1", "acc", "max", k=2)]
            ['c1', 'c2']
        """
        if direction not in _SCORES:
            raise OptionInvalid(f"direction: must be 'min' or 'max', got {direction!r}.")
        if k < 1:
            raise OptionInvalid(f"k: must be 1 or more, got {k}.")
        ids = [row["checkpoint_id"] for row in self._ranked(experiment_id, metric, direction, k)]
        return [one for one in self.get_checkpoints(ids) if one.state == COMMITTED]

    def _ranked(self, experiment_id: str, metric: str, direction: str, k: int) -> Sequence[Any]:
        """Ids with their scores, best first; each direction walks an index of its own."""
        key = self._key_of(metric)
        if key is None:
            return []
        asked = {"experiment_id": experiment_id, "key": key, "grade": NOT_A_NUMBER, "most": k}
        return self._read_rows(lambda rows: rows.query(_RANKED.format(_SCORES[direction]), asked))

    def _least(self, experiment_id: str, metric: str) -> float | None:
        first = next(iter(self._ranked(experiment_id, metric, "min", 1)), None)
        return None if first is None else joined(first["grade"], first["value"])


def _age(checkpoint: Checkpoint) -> tuple[int, float, str]:
    """What checkpoints of a run are ordered by, the oldest first."""
    return checkpoint.step, checkpoint.created_at, checkpoint.id
