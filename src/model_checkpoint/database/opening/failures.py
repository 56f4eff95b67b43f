"""Failures: what an error of a driver means to us."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from enum import Enum

from sqlalchemy import URL
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from model_checkpoint.database.errors import DatabaseBusy, DatabaseFull, DatabaseUnreachable, RowRefused
from model_checkpoint.database.opening.database_url import is_file, secrets_of
from model_checkpoint.errors import CheckpointException


class Meaning(Enum):
    """What to do about a failure."""

    PASSING = "others were in the way: wait a moment and try again"
    LOST = "the connection broke: try again on another one"
    REFUSED = "the row breaks a rule, or another process was a moment faster with the same one"
    FINAL = "no use in trying again"


_SQLITE_BUSY, _SQLITE_LOCKED, _SQLITE_FULL = 5, 6, 13
_SQLITE_DOUBTFUL = {8, 10, 14}  # read-only, input and output, cannot open: what else it says of files it cannot grow
_GROWTH = 65536  # bytes that SQLite may want at once beside its file, for the log and the index of that
# serialization, deadlock, lock timeout
_POSTGRESQL_PASSING = {"40001", "40P01", "55P03"}
_FULL = ("too many clients", "too many connections for role", "remaining connection slots")  # has no code yet
# deadlock, lock timeout, too many connections (of all, of this user), record changed since read
_MYSQL_PASSING = {1213, 1205, 1040, 1203, 1020}
_MYSQL_LOST = {2006, 2013, 2014, 2055, 1053, 1927}
_MYSQL_REFUSED = {1264, 1366, 1406, 1644}
_POSTGRESQL_FULL, _MYSQL_FULL = {"53100"}, {1021, 1114}


def told_alike(error: SQLAlchemyError | sqlite3.Error) -> SQLAlchemyError:
    """An error that came straight from the SQLite driver, as SQLAlchemy tells those that come through it."""
    if isinstance(error, SQLAlchemyError):
        return error
    told = DBAPIError.instance(None, None, error, sqlite3.Error, hide_parameters=True)
    assert isinstance(told, SQLAlchemyError)  # every class of the driver has one there
    return told


def meaning_of(error: SQLAlchemyError) -> Meaning:
    """Judge a failure."""
    if isinstance(error, PoolTimeout):
        return Meaning.PASSING
    if isinstance(error, (IntegrityError, DataError)):
        return Meaning.REFUSED
    if not isinstance(error, DBAPIError):
        return Meaning.FINAL
    orig = error.orig
    code = getattr(orig, "sqlite_errorcode", None)
    if code is not None:
        return Meaning.PASSING if code & 0xFF in (_SQLITE_BUSY, _SQLITE_LOCKED) else Meaning.FINAL
    if getattr(orig, "sqlstate", None) in _POSTGRESQL_PASSING or any(words in str(orig) for words in _FULL):
        return Meaning.PASSING
    number = orig.args[0] if orig is not None and orig.args else None
    if number in _MYSQL_PASSING:
        return Meaning.PASSING
    if number in _MYSQL_REFUSED:
        return Meaning.REFUSED
    return Meaning.LOST if error.connection_invalidated or number in _MYSQL_LOST else Meaning.FINAL


def typed(error: SQLAlchemyError, meaning: Meaning, where: str, url: URL) -> CheckpointException:
    """Our error for a failure that is not tried again; nothing secret is in its text."""
    said = _said(error)
    for secret in secrets_of(url):
        said = said.replace(secret, "***")
    if meaning is Meaning.REFUSED:
        return RowRefused(f"{where}: the database refused the row ({said}). Nothing was written.")
    if meaning is Meaning.PASSING:
        return DatabaseBusy(f"{where}: others held it for too long ({said}). Nothing was written; try again.")
    if _is_full(error, url):
        return DatabaseFull(f"{where}: its disk takes no more ({said}). Nothing was written; free some room.")
    return DatabaseUnreachable(f"{where}: cannot be used ({said}). Check that it runs and that the URL is right.")


def _is_full(error: SQLAlchemyError, url: URL) -> bool:
    """Whether there is no room; where SQLite may mean that and does not say so, the disk itself is asked."""
    orig = error.orig if isinstance(error, DBAPIError) else None
    code = getattr(orig, "sqlite_errorcode", None)
    if code is not None:
        doubtful = code & 0xFF in _SQLITE_DOUBTFUL and is_file(url)
        return code & 0xFF == _SQLITE_FULL or (doubtful and _takes_no_more(os.path.dirname(str(url.database)) or "."))
    number = orig.args[0] if orig is not None and orig.args else None
    return getattr(orig, "sqlstate", None) in _POSTGRESQL_FULL or number in _MYSQL_FULL


def _takes_no_more(folder: str) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            os.posix_fallocate(probe.fileno(), 0, _GROWTH)
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def own_error(error: SQLAlchemyError) -> CheckpointException | None:
    """The error of ours that SQLAlchemy wrapped, if that is what it is."""
    orig = error.orig if isinstance(error, StatementError) else None
    return orig if isinstance(orig, CheckpointException) else None


def _said(error: SQLAlchemyError) -> str:
    orig = error.orig if isinstance(error, StatementError) else None
    text = str(orig if orig is not None else error).strip()
    return " ".join(text.split())[:500] or type(error).__name__
