"""Creation: all tables in an empty database, at once and without Alembic."""

from __future__ import annotations

from sqlalchemy import Connection, inspect

from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.models import Base
from model_checkpoint.database.opening.transactions import Transactions
from model_checkpoint.database.schema.audit_guard import guard_audit
from model_checkpoint.database.schema.revisions import CREATING, HEAD
from model_checkpoint.database.schema.schema_lock import schema_lock
from model_checkpoint.database.schema.schema_version import store_revision, stored_revision


def create_catalog(transactions: Transactions) -> None:
    """Make the tables, unless another process did so meanwhile; carry on where one died halfway."""
    where = transactions.pool.where

    def work(connection: Connection) -> None:
        with schema_lock(connection):
            stored = stored_revision(connection)
            if stored not in ("", CREATING):
                return
            if not stored:
                _refuse_tables_of_others(connection, where)
                store_revision(connection, CREATING)  # where tables cannot be made in a transaction
            Base.metadata.create_all(connection)
            if stored:
                _make_missing_indexes(connection)  # of tables that were there: who made them died before
            guard_audit(connection)
            store_revision(connection, HEAD)

    transactions.write(work)


def _make_missing_indexes(connection: Connection) -> None:
    for table in Base.metadata.sorted_tables:
        for index in table.indexes:
            index.create(connection, checkfirst=True)


def _refuse_tables_of_others(connection: Connection, where: str) -> None:
    taken = sorted(set(inspect(connection).get_table_names()) & set(Base.metadata.tables))
    if taken:
        raise RowRefused(
            f"{where}: has tables named {', '.join(taken)} that are not ours. Use a database of its own for the "
            "catalog; nothing was changed."
        )
