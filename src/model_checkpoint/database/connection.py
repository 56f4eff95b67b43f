"""Connection: the catalog of one database, whole: runs, metrics, checkpoints, lineage, integrity, intents, audit.

Safe in threads, in many processes and after a fork. Every call is one short transaction; what passes (locks, deadlocks,
a server that was restarted) is tried again, what does not is a typed error.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy import URL, Connection

from model_checkpoint import forks
from model_checkpoint.database.catalog.audit_rows import note_change, noting_failed_migration
from model_checkpoint.database.catalog.integrity_rows import IntegrityCatalog
from model_checkpoint.database.catalog.intent_rows import IntentCatalog
from model_checkpoint.database.catalog.statistics_rows import StatisticsCatalog
from model_checkpoint.database.errors import DatabaseUnreachable, SchemaOutdated, SchemaTooNew
from model_checkpoint.database.event_records import SchemaChange
from model_checkpoint.database.opening.database_url import read_url
from model_checkpoint.database.opening.pool import DatabasePool
from model_checkpoint.database.opening.transactions import Transactions, Work
from model_checkpoint.database.overview.checkpoint_search import CheckpointSearchCatalog
from model_checkpoint.database.overview.run_pulses import RunPulseCatalog
from model_checkpoint.database.overview.series_windows import SeriesWindowCatalog
from model_checkpoint.database.overview.space_rows import SpaceCatalog
from model_checkpoint.database.overview.sparklines import SparklineCatalog
from model_checkpoint.database.queries.history_queries import HistoryQueries
from model_checkpoint.database.queries.run_queries import RunQueries
from model_checkpoint.database.saved_rows import SavedCatalog
from model_checkpoint.database.schema.creation import create_catalog
from model_checkpoint.database.schema.migration import Notify, ignore_change, migrate
from model_checkpoint.database.schema.revisions import HEAD, SchemaStatus, schema_status
from model_checkpoint.database.schema.schema_version import stored_revision
from model_checkpoint.database.writes.checkpoint_writes import CheckpointWrites
from model_checkpoint.database.writes.history_writes import AuditWrites, LineageWrites
from model_checkpoint.database.writes.point_writes import PointWrites
from model_checkpoint.database.writes.run_writes import RunWrites

_log = logging.getLogger(__name__)
T = TypeVar("T")


class EnhancedDatabaseConnection(
    RunQueries,
    RunWrites,
    PointWrites,
    CheckpointWrites,
    StatisticsCatalog,
    LineageWrites,
    IntegrityCatalog,
    IntentCatalog,
    HistoryQueries,
    AuditWrites,
    SavedCatalog,
    RunPulseCatalog,
    SparklineCatalog,
    SeriesWindowCatalog,
    CheckpointSearchCatalog,
    SpaceCatalog,
):
    """The catalog of one database.

    Args:
        database_url: ``sqlite:///experiments.db``, ``postgresql://user:password@host/name``,
            ``mysql://user:password@host/name``, or any URL SQLAlchemy has a dialect for.
        auto_migrate: Make the tables in an empty database, and bring those of an earlier version up to date, with a
            backup before.
        lazy: Open the database at the first call instead of now.
        notify: Called before and after a migration.

    A database that a newer version of this package made opens read-only: writing raises ``SchemaTooNew``.

    Example:
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     db.list_experiments().items
        []

    Raises:
        DatabaseUnreachable: There is no server, or the file cannot be opened.
        SchemaOutdated: The tables are missing or of an earlier version, and ``auto_migrate`` is off.
    """

    def __init__(
        self,
        database_url: str | URL = "sqlite:///experiments.db",
        auto_migrate: bool = True,
        *,
        lazy: bool = False,
        notify: Notify = ignore_change,
    ) -> None:
        url = read_url(database_url)
        self._pool = DatabasePool(url)
        self._transactions = Transactions(self._pool)
        self._auto_migrate, self._listeners = auto_migrate, [notify]
        self._experiment_numbers: dict[str, int] = {}
        self._key_ids: dict[str, int] = {}
        self._current = threading.local()
        forks.in_child(self._begin_anew)
        self._opening = forks.lock()
        self._revision = ""
        weakref.finalize(self, self._pool.close).atexit = False  # forgotten without a close: give all back all the same
        if not lazy:
            try:
                self._open()
            except BaseException:
                self._pool.close()
                raise

    @property
    def database_url(self) -> str:
        """Which database this is, without its password."""
        return self._pool.where

    @property
    def revision(self) -> str:
        """The revision of the schema; empty before the first call of a lazy connection."""
        return self._revision

    @property
    def read_only(self) -> bool:
        """Whether a newer version made this database, so that it is only read."""
        return schema_status(self._revision) is SchemaStatus.NEWER

    def close(self) -> None:
        """Give the connections back; also what leaving a ``with`` block does.

        Example:
            >>> EnhancedDatabaseConnection("sqlite://").close()
        """
        self._pool.close()

    def __enter__(self) -> EnhancedDatabaseConnection:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.database_url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the database for itself."""
        return _reopened, (type(self), self._pool.url, self._auto_migrate)

    def tell_changes_to(self, notify: Notify) -> None:
        """Let one more be told before and after a migration, should it still come to one.

        Example:
            >>> with EnhancedDatabaseConnection("sqlite://", lazy=True) as db:
            ...     db.tell_changes_to(lambda change: print(change.from_revision))
            ...     db.list_experiments().items
            []
        """
        self._listeners.append(notify)

    def _tell_change(self, change: SchemaChange) -> None:
        for listener in self._listeners:
            listener(change)

    def together(self, work: Callable[[], T], *, durable: bool = True) -> T:
        """Run calls of this connection as one transaction: all or none, one flush; ``work`` may run several times.

        Example:
            >>> from model_checkpoint.database import Checkpoint, Experiment
            >>> db = EnhancedDatabaseConnection("sqlite://")
            >>> def both():
            ...     db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", step=7))
            ...     db.record_audit("save", "c1")
            >>> db.together(both)
            >>> db.latest("r1").id
            'c1'
        """
        if getattr(self._current, "connection", None) is not None:
            return work()  # part of what is going together already

        def all_of_it(connection: Connection) -> T:
            self._current.connection = connection
            try:
                return work()
            except BaseException:
                self._forget_numbers()
                raise
            finally:
                self._current.connection = None

        return self._write(all_of_it, durable=durable)

    def _read(self, work: Work[T]) -> T:
        current = getattr(self._current, "connection", None)
        if current is not None:
            return work(current)
        self._open()
        try:
            return self._transactions.read(work)
        except DatabaseUnreachable as error:
            if self.read_only:
                raise self._too_new("cannot be read here either") from error
            raise

    def _write(self, work: Work[T], *, durable: bool = True) -> T:
        current = getattr(self._current, "connection", None)
        if current is not None:
            return work(current)
        self._open()
        if self.read_only:
            raise self._too_new("is read-only here")
        return self._transactions.write(work, durable=durable)

    def _begin_anew(self) -> None:
        """What the parent was in the middle of is not ours."""
        self._current = threading.local()

    def _open(self) -> None:
        """See to it that the tables are there, once."""
        if self._revision:
            return
        with self._opening:
            if not self._revision:
                self._revision = self._brought_up_to_date()

    def _brought_up_to_date(self) -> str:
        stored = self._transactions.read(stored_revision)
        status = schema_status(stored)
        if status is SchemaStatus.NEWER:
            _log.warning("%s", self._too_new("is opened read-only", stored))
        if status in (SchemaStatus.CURRENT, SchemaStatus.NEWER):
            return stored
        if not self._auto_migrate:
            raise SchemaOutdated(
                f"{self.database_url}: has {status.value} (revision {stored or 'none'}, needed {HEAD}). Open it with "
                "auto_migrate=True, or call MigrationManager(database_url).migrate()."
            )
        if status is SchemaStatus.EMPTY:
            create_catalog(self._transactions)
        else:
            self._migrate()
        return self._transactions.read(stored_revision)

    def _migrate(self) -> None:
        pool = DatabasePool(self._pool.url, patient=True)
        transactions = Transactions(pool)
        try:
            with noting_failed_migration(transactions, HEAD):
                migrate(transactions, HEAD, record=note_change, notify=self._tell_change)
        finally:
            pool.close()

    def _too_new(self, so: str, revision: str = "") -> SchemaTooNew:
        return SchemaTooNew(
            f"{self.database_url}: revision {revision or self._revision} of its schema is of a newer version of "
            f"model-checkpoint (this one knows up to {HEAD}), so it {so}. Upgrade: pip install -U model-checkpoint."
        )


def _reopened(cls: Callable[..., T], url: URL, auto_migrate: bool) -> T:
    return cls(url, auto_migrate, lazy=True)
