"""Schema lock: one process at a time makes or changes tables, however many open a database at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, func, select

from model_checkpoint.database.errors import DatabaseBusy

_NUMBER = 0x6D636B7074  # of the advisory lock
_SECONDS = 50  # less than the time limit of a statement


@contextmanager
def schema_lock(connection: Connection) -> Iterator[None]:
    """Hold the lock for a block; on SQLite the transaction itself is one."""
    kind = connection.dialect.name
    if kind == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_NUMBER)))
    if kind not in ("mysql", "mariadb"):
        yield
        return
    database = str(connection.engine.url.database)  # names of locks are the server's, not the database's
    name = "mckpt_schema_" + hashlib.sha256(database.encode()).hexdigest()[:32]
    if connection.execute(select(func.get_lock(name, _SECONDS))).scalar() != 1:
        raise DatabaseBusy(f"database {database}: another process has been changing its tables for {_SECONDS} s.")
    try:
        yield
    finally:
        if not connection.invalidated:
            connection.execute(select(func.release_lock(name)))
