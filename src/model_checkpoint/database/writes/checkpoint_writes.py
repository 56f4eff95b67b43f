"""Checkpoint writes: stored, changed, deleted and brought back; flags that say which were chosen as best.

A deleted row stays, for its history and for who wants it back; it is in no list unless asked for.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.records import COMMITTED, DELETED, Checkpoint
from model_checkpoint.database.table_rows import AT_ONCE, RowCatalog, TableRows, batched, metric_numbers
from model_checkpoint.database.values.checkpoint_scores import FLAGS, KINDS, index_rows, scores_of
from model_checkpoint.database.values.row_records import checkpoint_of, require_fields, row_of
from model_checkpoint.errors import OptionInvalid, WrongReference


class CheckpointWrites(RowCatalog):
    """What is written of checkpoints."""

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
        keys = self._keys_of({name for one in ordered for name in scores_of(one)})

        def work(rows: TableRows) -> int:
            for some in batched(ordered, AT_ONCE):
                store_checkpoints(rows, some, keys)
            return len(ordered)

        return self._write_rows(work)

    def edit_checkpoint(self, checkpoint_id: str, change: Callable[[Checkpoint], Checkpoint]) -> Checkpoint:
        """Replace a checkpoint's row by what ``change`` makes of it, with nobody else in between.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
            ...     db.edit_checkpoint("c1", lambda c: dataclasses.replace(c, tags=[*c.tags, "release"])).tags
            ['release']

        Raises:
            WrongReference: There is no such checkpoint.
        """

        def work(rows: TableRows) -> Checkpoint:
            there = _there(rows, checkpoint_id, lock=True)
            after = change(there)
            if (after.id, after.experiment_id) != (there.id, there.experiment_id):
                raise OptionInvalid(f"checkpoint {checkpoint_id!r}: its id and run cannot be changed.")
            numbers = metric_numbers(rows, sorted(scores_of(after)))
            rows.update("checkpoints", {"id": checkpoint_id}, row_of(after))
            _unindex(rows, checkpoint_id)
            _index(rows, [after], numbers)
            return after

        return self._write_rows(work)

    def update_checkpoint(self, checkpoint_id: str, **fields: Any) -> Checkpoint:
        """Change some fields of a checkpoint's row, e.g. ``pinned=True``.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
            ...     db.update_checkpoint("c1", pinned=True).pinned
            True

        Raises:
            WrongReference: There is no such checkpoint.
            OptionInvalid: There is no such field.
        """
        require_fields(Checkpoint, fields, fixed=("id", "experiment_id"))
        return self.edit_checkpoint(checkpoint_id, lambda there: dataclasses.replace(there, **fields))

    def delete_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """Mark a checkpoint deleted: it is in no list, is nobody's best, and can be brought back.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
            ...     db.delete_checkpoint("c1").state, db.page("r1").items, db.undelete_checkpoint("c1").state
            ('deleted', [], 'committed')

        Raises:
            WrongReference: There is no such checkpoint.
        """
        now = time.time()

        def work(rows: TableRows) -> Checkpoint:
            _delete(rows, checkpoint_id, now)
            return _there(rows, checkpoint_id)

        return self._write_rows(work)

    def mark_deleted(self, checkpoint_id: str, *, at: float | None = None) -> bool:
        """Mark a checkpoint deleted as :meth:`delete_checkpoint` does; says whether it was this call that did.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
            ...     db.mark_deleted("c1"), db.mark_deleted("c1")
            (True, False)
        """
        when = time.time() if at is None else at
        return self._write_rows(lambda rows: _delete(rows, checkpoint_id, when))

    def undelete_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """Bring a deleted checkpoint back into the lists; its best flags are for whoever knows.

        Example: see :meth:`delete_checkpoint`.
        """
        return self.update_checkpoint(checkpoint_id, state=COMMITTED, deleted_at=None)

    def forget_checkpoint(self, checkpoint_id: str) -> bool:
        """Remove the row itself, as if it had never been saved; says whether there was one.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.forget_checkpoint("nothing")
            False
        """
        return self._write_rows(lambda rows: rows.delete("checkpoints", {"id": checkpoint_id}) > 0)

    def flag_best(self, experiment_id: str, kind: str, checkpoint_ids: Sequence[str]) -> None:
        """Let exactly these checkpoints of a run carry a best flag: of kind ``loss``, ``val_loss`` or ``metric``.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoints([Checkpoint(id=f"c{n}", experiment_id="r1", step=n) for n in range(3)])
            ...     db.flag_best("r1", "loss", ["c0"])
            ...     db.flag_best("r1", "loss", ["c1"])
            ...     [one.id for one in db.get_checkpoints_by_experiment("r1", best_only=True)]
            ['c1']
        """
        if kind not in KINDS:
            raise OptionInvalid(f"kind: must be one of {', '.join(KINDS)}, got {kind!r}.")
        self._write_rows(lambda rows: _flag(rows, experiment_id, KINDS[kind], sorted(set(checkpoint_ids))))

    def update_best_flags(
        self,
        experiment_id: str,
        checkpoint_id: str,
        *,
        is_best_loss: bool = False,
        is_best_val_loss: bool = False,
        is_best_metric: bool = False,
    ) -> None:
        """Hand the flags that are True to one checkpoint, from whichever had them; others stay where they are.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
            ...     db.update_best_flags("r1", "c1", is_best_loss=True)
            ...     db.get_checkpoint("c1").is_best_loss
            True
        """
        wanted = zip(FLAGS, (is_best_loss, is_best_val_loss, is_best_metric), strict=True)
        flags = [flag for flag, given in wanted if given]

        def work(rows: TableRows) -> None:
            for flag in flags:
                _flag(rows, experiment_id, flag, [checkpoint_id])

        self._write_rows(work)


def store_checkpoints(rows: TableRows, checkpoints: Sequence[Checkpoint], keys: Mapping[str, int]) -> None:
    """Put down rows, or change those that are there, and their index; ``keys`` has every metric they name."""
    ids = [one.id for one in checkpoints]
    known = {row["id"] for row in rows.find("checkpoints", {"id": ids}, columns=["id"], lock=True)}
    rows.insert("checkpoints", [row_of(one) for one in checkpoints if one.id not in known])
    rows.update_each("checkpoints", ["id"], [row_of(one) for one in checkpoints if one.id in known])
    if known:
        rows.delete("checkpoint_metrics", {"checkpoint_id": sorted(known)})
    _index(rows, checkpoints, keys)


def insert_checkpoint(rows: TableRows, new: Checkpoint, keys: Mapping[str, int], flags: Mapping[str, bool]) -> None:
    """Put down a row that is known to be new, with the best flags it won."""
    rows.insert("checkpoints", [{**row_of(new), **flags}])
    _index(rows, [new], keys)


def _index(rows: TableRows, checkpoints: Sequence[Checkpoint], keys: Mapping[str, int]) -> None:
    """The index the best are found by."""
    rows.insert("checkpoint_metrics", [row for one in checkpoints for row in index_rows(one, keys)])


def _there(rows: TableRows, checkpoint_id: str, *, lock: bool = False) -> Checkpoint:
    found = rows.find("checkpoints", {"id": checkpoint_id}, lock=lock)
    if not found:
        raise WrongReference(f"checkpoint {checkpoint_id!r} is not in the catalog.")
    return checkpoint_of(found[0])


def _delete(rows: TableRows, checkpoint_id: str, at: float) -> bool:
    gone = {"state": DELETED, "deleted_at": at, **dict.fromkeys(FLAGS, False)}
    met = rows.update("checkpoints", {"id": checkpoint_id, "state": COMMITTED}, gone) > 0
    if met:
        _unindex(rows, checkpoint_id)
    return met


def _unindex(rows: TableRows, checkpoint_id: str) -> None:
    rows.delete("checkpoint_metrics", {"checkpoint_id": checkpoint_id})


def _flag(rows: TableRows, experiment_id: str, flag: str, ids: Sequence[str]) -> None:
    # one at a time for each run: who clears must see what another one is just giving
    rows.lock("experiments", {"id": experiment_id})
    own = {"experiment_id": experiment_id}
    rows.update("checkpoints", {**own, flag: True}, {flag: False})
    given = [rows.update("checkpoints", {**own, "id": one, "state": COMMITTED}, {flag: True}) for one in ids]
    if not all(given):
        raise RowRefused(f"experiment {experiment_id!r} has no checkpoint {', '.join(ids)}; no flag was changed.")
