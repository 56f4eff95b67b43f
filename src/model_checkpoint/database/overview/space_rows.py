"""Space rows: bytes by run and by day, and how long ago everything was verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Integer, Select, case, cast, func, select

from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.models import CheckpointRow, table_of
from model_checkpoint.database.records import COMMITTED
from model_checkpoint.database.summed_records import RecentSave, RootSpace, SavedDay, VerifiedAges

DAY = 86_400.0
_rows = table_of(CheckpointRow).c
_UNIQUE = func.coalesce(_rows.unique_bytes, _rows.file_size)


class SpaceCatalog(CatalogPart):
    """Where the bytes are."""

    def spaces(self) -> list[RootSpace]:
        """How many checkpoints and bytes each run has in each root.

        Example:
            >>> from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", file_size=10, unique_bytes=4))
            ...     [(one.run, one.total_bytes, one.unique_bytes) for one in db.spaces()]
            [('r1', 10, 4)]
        """
        sums = (func.count().label("n"), func.sum(_rows.file_size).label("total"), func.sum(_UNIQUE).label("own"))
        statement = select(_rows.root, _rows.experiment_id, *sums).where(_rows.state == COMMITTED)
        statement = statement.group_by(_rows.root, _rows.experiment_id)
        return [
            RootSpace(
                root=row.root, run=row.experiment_id, checkpoints=int(row.n), total_bytes=int(row.total),
                unique_bytes=int(row.own),
            )
            for row in self._rows_of(statement)
        ]  # fmt: skip

    def saved_days(self, *, since: float) -> list[SavedDay]:
        """Bytes that each day since then brought and took, by root; the first entry sums up all before.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.saved_days(since=0.0)
            []
        """
        found: dict[tuple[str, int], list[int]] = {}
        for place, column in enumerate((_rows.created_at, _rows.deleted_at)):
            moment = case((column < since, since), else_=column)
            day = cast(func.floor((moment - since) / DAY), Integer).label("day")
            statement = select(_rows.root, day, func.sum(_UNIQUE)).where(column.is_not(None)).group_by(_rows.root, day)
            for root, number, nbytes in self._rows_of(statement):
                found.setdefault((root, int(number)), [0, 0])[place] += int(nbytes)
        return [
            SavedDay(root=root, start=since + number * DAY, saved_bytes=saved, deleted_bytes=gone)
            for (root, number), (saved, gone) in sorted(found.items())
        ]

    def recent_saves(self, *, each: int) -> list[RecentSave]:
        """The latest checkpoints of each root, ``each`` at most, the oldest first.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.recent_saves(each=21)
            []
        """
        place = func.row_number().over(partition_by=_rows.root, order_by=(_rows.created_at.desc(), _rows.id.desc()))
        own = (_rows.root, _rows.id, _rows.step, _rows.created_at, _UNIQUE.label("nbytes"))
        ranked = select(*own, place.label("place")).where(_rows.state == COMMITTED).subquery()
        wanted = [column for column in ranked.c if column.name != "place"]
        statement = select(*wanted).where(ranked.c.place <= each).order_by(ranked.c.created_at, ranked.c.id)
        return [RecentSave(*row) for row in self._rows_of(statement)]

    def _rows_of(self, statement: Select[Any]) -> Sequence[Any]:
        return self._read(lambda connection: connection.execute(statement).all())

    def verified_ages(self, now: float) -> VerifiedAges:
        """How many checkpoints were last verified how long ago, and how many are damaged.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.verified_ages(0.0).never
            0
        """
        damaged = _rows.health.in_(("damaged", "missing"))
        age = case(
            (damaged, "damaged"),
            (_rows.verified_at == 0.0, "never"),
            (_rows.verified_at >= now - DAY, "day"),
            (_rows.verified_at >= now - 7 * DAY, "week"),
            else_="older",
        ).label("age")
        statement = select(age, func.count()).where(_rows.state == COMMITTED).group_by(age)
        return VerifiedAges(**{word: int(count) for word, count in self._rows_of(statement)})
