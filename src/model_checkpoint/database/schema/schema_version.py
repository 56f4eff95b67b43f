"""Schema version: what revision a database has, and what that means to this version of the package."""

from __future__ import annotations

from enum import Enum

from sqlalchemy import Column, Connection, MetaData, String, Table, delete, insert, inspect, select

REVISIONS = ("0001", "0002", "0003", "0004")  # as in the folder `migrations`, in order
HEAD = REVISIONS[-1]
CREATING = "creating"  # the tables are being made, or whoever made them died
VERSION_TABLE = "mckpt_schema"  # not Alembic's own name: applications that share the database may have that one

_version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))


class SchemaStatus(Enum):
    """A stored revision beside ours."""

    EMPTY = "no catalog yet"
    CURRENT = "as we know it"
    OLDER = "of an earlier version"
    NEWER = "of a later version"


def stored_revision(connection: Connection) -> str:
    """The revision a database has; empty where there is none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return ""
    return str(connection.execute(select(_version.c.version_num)).scalar() or "")


def schema_status(revision: str) -> SchemaStatus:
    """What a stored revision means to us.

    Example:
        >>> schema_status("0001"), schema_status("9999")
        (<SchemaStatus.OLDER: 'of an earlier version'>, <SchemaStatus.NEWER: 'of a later version'>)
    """
    if revision in ("", CREATING):
        return SchemaStatus.EMPTY
    if revision == HEAD:
        return SchemaStatus.CURRENT
    return SchemaStatus.OLDER if revision in REVISIONS else SchemaStatus.NEWER


def store_revision(connection: Connection, revision: str) -> None:
    """Note the revision, making its table where it is missing."""
    _version.create(connection, checkfirst=True)
    connection.execute(delete(_version))
    connection.execute(insert(_version).values(version_num=revision))
