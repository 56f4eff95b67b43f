"""Migration: from one revision to another, forward and back, with the data of before kept.

Where the database can, all of it is one transaction. Where it cannot (MySQL), each revision is made of steps that may
be done twice, and the stored revision moves after each: whoever comes next carries on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from model_checkpoint.database.errors import MigrationFailed
from model_checkpoint.database.event_records import SchemaChange
from model_checkpoint.database.opening.transactions import Transactions
from model_checkpoint.database.schema.backups import keep_backup
from model_checkpoint.database.schema.revisions import REVISIONS, VERSION_TABLE
from model_checkpoint.database.schema.schema_lock import schema_lock
from model_checkpoint.database.schema.schema_version import stored_revision
from model_checkpoint.errors import CheckpointException, OptionInvalid

_log = logging.getLogger(__name__)
Notify = Callable[[SchemaChange], object]
Record = Callable[[Connection, SchemaChange], object]


def ignore_change(change: SchemaChange) -> None:
    """Drop the news; the default listener."""


def migrate(
    transactions: Transactions, target: str, *, record: Record, notify: Notify = ignore_change, backup: bool = True
) -> SchemaChange | None:
    """Bring the database to ``target``, with what ``record`` writes of it; None when it was there already.

    Raises:
        OptionInvalid: There is no such revision, or the database has one we do not know.
        MigrationFailed: It ended early; where the database can, nothing was changed.
    """
    if target not in REVISIONS:
        raise OptionInvalid(f"revision {target!r} is unknown; there are {', '.join(REVISIONS)}.")
    where = transactions.pool.where

    def work(connection: Connection) -> SchemaChange | None:
        with schema_lock(connection):
            stored = stored_revision(connection)
            if stored == target:
                return None
            if stored not in REVISIONS:
                raise OptionInvalid(f"{where}: has revision {stored or 'none'!r}, which this version cannot migrate.")
            kept = keep_backup(connection, stored) if backup else ""
            change = SchemaChange(
                moment="before", database=where, from_revision=stored, to_revision=target, backup=kept
            )
            notify(change)
            _log.info("%s: migrating from revision %s to %s, backup: %s", where, stored, target, kept or "none")
            with _told(where, kept):
                _run(connection, stored, target)
                record(connection, change)  # committed with the last of the revisions, or not at all
            return change

    done = transactions.write(work)
    if done is not None:
        notify(SchemaChange(**{**_fields(done), "moment": "after"}))
    return done


def _fields(change: SchemaChange) -> dict[str, str]:
    return {name: getattr(change, name) for name in SchemaChange.__dataclass_fields__}


@contextmanager
def _told(where: str, kept: str) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, CheckpointException, ValueError, TypeError, KeyError) as error:  # the last: of old data
        said = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise MigrationFailed(
            f"{where}: the migration ended early ({said}). The data of before are kept: {kept or 'no backup wanted'}.",
            backup=kept,
            inner_exception=error,
        ) from error


def scripts() -> Any:
    """The revisions on disk, as Alembic sees them; importing it takes long, so only who migrates does."""
    from alembic.script import ScriptDirectory

    folder = Path(__file__).resolve().parents[1] / "migrations"
    return ScriptDirectory(str(folder), version_locations=[str(folder)])


def _run(connection: Connection, stored: str, target: str) -> None:
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext

    directory = scripts()
    forward = REVISIONS.index(target) > REVISIONS.index(stored)

    def steps(revision: Any, context: MigrationContext) -> Any:
        return (directory._upgrade_revs if forward else directory._downgrade_revs)(target, revision)

    options = {"version_table": VERSION_TABLE, "fn": steps}
    context = MigrationContext.configure(connection, opts=options)
    with Operations.context(context):
        context.run_migrations()
