"""Revisions: those of the schema, and what a stored one means to this version of the package; knows no SQL."""

from __future__ import annotations

from enum import Enum

REVISIONS = ("0001", "0002", "0003", "0004")  # as in the folder `migrations`, in order
HEAD = REVISIONS[-1]
CREATING = "creating"  # the tables are being made, or whoever made them died
VERSION_TABLE = "mckpt_schema"  # not Alembic's own name: applications that share the database may have that one


class SchemaStatus(Enum):
    """A stored revision beside ours."""

    EMPTY = "no catalog yet"
    CURRENT = "as we know it"
    OLDER = "of an earlier version"
    NEWER = "of a later version"


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
