"""Schema version: what revision a database has, and how it is noted there."""

from __future__ import annotations

from sqlalchemy import Column, Connection, MetaData, String, Table, delete, insert, inspect, select

from model_checkpoint.database.schema.revisions import VERSION_TABLE

_version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))


def stored_revision(connection: Connection) -> str:
    """The revision a database has; empty where there is none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return ""
    return str(connection.execute(select(_version.c.version_num)).scalar() or "")


def store_revision(connection: Connection, revision: str) -> None:
    """Note the revision, making its table where it is missing."""
    _version.create(connection, checkfirst=True)
    connection.execute(delete(_version))
    connection.execute(insert(_version).values(version_num=revision))
