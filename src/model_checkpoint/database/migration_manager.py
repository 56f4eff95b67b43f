"""Migration manager: look at the schema of a database, bring it forward and back."""

from __future__ import annotations

from types import TracebackType

from sqlalchemy import URL, Connection

from model_checkpoint.database.catalog.audit_rows import note_change, note_migration, noting_failed_migration
from model_checkpoint.database.event_records import SchemaChange
from model_checkpoint.database.models import Base
from model_checkpoint.database.opening.database_url import read_url
from model_checkpoint.database.opening.pool import DatabasePool
from model_checkpoint.database.opening.transactions import Transactions
from model_checkpoint.database.schema.creation import create_catalog
from model_checkpoint.database.schema.migration import Notify, ignore_change, migrate, scripts
from model_checkpoint.database.schema.revisions import CREATING, HEAD, REVISIONS, VERSION_TABLE
from model_checkpoint.database.schema.schema_version import stored_revision


class MigrationManager:
    """The schema of one database.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> url = f"sqlite:///{folder.name}/catalog.db"
        >>> with MigrationManager(url) as manager:
        ...     _ = manager.migrate()
        ...     manager.get_current_version() == manager.get_applied_migrations()[-1]
        True
        >>> folder.cleanup()
    """

    def __init__(self, database_url: str | URL = "sqlite:///experiments.db", *, notify: Notify = ignore_change) -> None:
        self._pool = DatabasePool(read_url(database_url), patient=True)
        self._transactions, self._notify = Transactions(self._pool), notify

    def get_current_version(self) -> str:
        """The revision the database has; empty where there is no catalog."""
        stored = self._transactions.read(stored_revision)
        return "" if stored == CREATING else stored

    def get_applied_migrations(self) -> list[str]:
        """The revisions the database has been through."""
        current = self.get_current_version()
        return [revision for revision in REVISIONS if current and revision <= current]

    def get_pending_migrations(self) -> list[str]:
        """The revisions that are to come."""
        current = self.get_current_version()
        return [revision for revision in REVISIONS if revision > current]

    def migrate(self, target: str = HEAD, *, backup: bool = True) -> SchemaChange | None:
        """Bring the database to a revision, after a backup; None when there was nothing to do.

        An empty database gets all tables at once, or, for an earlier ``target``, goes through the revisions.
        """
        if not self.get_current_version():
            create_catalog(self._transactions)
        return self._moved(target, backup=backup)

    def rollback(self, target: str, *, backup: bool = True) -> SchemaChange | None:
        """Bring the database back to an earlier revision, after a backup: what that does not know is dropped.

        The audit log tells of it; before revision 0003 there is none, and the log of the backup is the record.

        Example:
            >>> import tempfile
            >>> folder = tempfile.TemporaryDirectory()
            >>> with MigrationManager(f"sqlite:///{folder.name}/catalog.db") as manager:
            ...     _ = manager.migrate()
            ...     manager.rollback("0001").to_revision
            '0001'
            >>> folder.cleanup()
        """
        return self._moved(target, backup=backup)

    def validate_migrations(self) -> list[str]:
        """What is wrong, empty if sound: revisions out of order, tables that differ from the models."""
        from alembic.autogenerate import compare_metadata
        from alembic.runtime.migration import MigrationContext

        shipped = [script.revision for script in scripts().walk_revisions()][::-1]
        problems = (
            [] if shipped == list(REVISIONS) else [f"revisions on disk are {shipped}, expected {list(REVISIONS)}"]
        )

        def work(connection: Connection) -> list[str]:
            ours = {VERSION_TABLE, *Base.metadata.tables}
            options = {
                "version_table": VERSION_TABLE,
                "include_name": lambda name, kind, _: kind != "table" or name in ours,
            }
            return [
                str(one)
                for one in compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)
            ]

        return problems + (self._transactions.read(work) if self.get_current_version() == HEAD else [])

    def close(self) -> None:
        """Give the connections back."""
        self._pool.close()

    def __enter__(self) -> MigrationManager:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _moved(self, target: str, *, backup: bool) -> SchemaChange | None:
        """Migrate, and let the audit log tell of it: on the way back beforehand too, for the log itself may go.

        Then the backup ends with that entry.
        """
        current = self.get_current_version()
        if target in REVISIONS and target < current:
            begun = {"from": current, "to": target}
            self._transactions.write(lambda connection: note_migration(connection, "begun", begun))
        with noting_failed_migration(self._transactions, target):
            return migrate(self._transactions, target, record=note_change, notify=self._notify, backup=backup)
