"""Backups: the data as they were before a migration; nothing here ever removes one.

A SQLite file is copied beside itself. Elsewhere each table is copied into one of the same database, since the tools of
the servers may not be at hand where the training runs.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from glob import escape
from itertools import chain, count
from pathlib import Path

from sqlalchemy import Connection, inspect

from model_checkpoint.database.models import Base
from model_checkpoint.database.opening.database_url import is_file, is_sqlite
from model_checkpoint.database.schema.revisions import VERSION_TABLE
from model_checkpoint.flushing import flush

PREFIX = "mckpt_backup_"


def keep_backup(connection: Connection, revision: str) -> str:
    """Copy everything of the catalog and say where to; of tables that of the revision is last: then all are there."""
    url, stamp = connection.engine.url, time.strftime("%Y%m%d_%H%M%S", time.gmtime())
    if is_file(url):
        return _copy_file(Path(str(url.database)), f"{revision}-{stamp}")
    if is_sqlite(url):
        return ""  # memory ends with the process anyway
    return _copy_tables(connection, f"{PREFIX}{revision}_{stamp}")


def _free(name: str, taken: Callable[[str], bool]) -> str:
    """The name, or one like it: what an earlier migration of the same second kept stays."""
    names = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(one for one in names if not taken(one))


def _copy_file(path: Path, label: str) -> str:
    """Copy through SQLite itself, which reads what the write-ahead log holds too, to a new name."""
    for left in path.parent.glob(f"{escape(path.name)}.[0-9][0-9][0-9][0-9]-*.partial*"):
        left.unlink(missing_ok=True)  # who made it died: one process at a time migrates
    name = _free(f"{path.name}.{label}", lambda one: path.with_name(f"{one}.backup").exists())
    target, partial = path.with_name(f"{name}.backup"), path.with_name(f"{name}.partial")
    source, copy = sqlite3.connect(path), sqlite3.connect(partial)
    try:
        source.backup(copy)
    finally:
        copy.close()
        source.close()
    flush(partial)
    os.replace(partial, target)
    flush(path.parent)
    return str(target)


def _copy_tables(connection: Connection, label: str) -> str:
    quote = connection.dialect.identifier_preparer.quote
    there = set(inspect(connection).get_table_names())
    label = _free(label, lambda one: any(name.startswith(f"{one}_") for name in there))
    for name in (*(table.name for table in Base.metadata.sorted_tables), VERSION_TABLE):
        if name in there:
            copy = quote(f"{label}_{name}")
            connection.exec_driver_sql(f"CREATE TABLE {copy} AS SELECT * FROM {quote(name)}")
    return f"tables {label}_*"
