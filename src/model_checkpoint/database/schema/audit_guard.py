"""Audit guard: triggers that refuse to change or remove a row of the audit log, on every database that has them."""

from __future__ import annotations

import logging

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

_log = logging.getLogger(__name__)
_SAYS = "the audit log is append-only"
_SQLITE = [
    f"CREATE TRIGGER IF NOT EXISTS audit_log_{verb} BEFORE {verb} ON audit_log "
    f"BEGIN SELECT RAISE(ABORT, '{_SAYS}'); END"
    for verb in ("update", "delete")
]
_MYSQL = [
    statement
    for verb in ("update", "delete")
    for statement in (
        f"DROP TRIGGER IF EXISTS audit_log_{verb}",
        f"CREATE TRIGGER audit_log_{verb} BEFORE {verb} ON audit_log FOR EACH ROW "
        f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{_SAYS}'",
    )
]
_POSTGRESQL = [
    "CREATE OR REPLACE FUNCTION audit_log_guard() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{_SAYS}'; END $$",
    "DROP TRIGGER IF EXISTS audit_log_guard ON audit_log",
    "CREATE TRIGGER audit_log_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_guard()",
]
_GUARDS = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL, "mysql": _MYSQL, "mariadb": _MYSQL}


def guard_audit(connection: Connection) -> None:
    """Put the triggers on, also where some are already; say so where the database has none or does not let us."""
    statements = _GUARDS.get(connection.dialect.name)
    if statements is None:
        _log.warning("audit_log: no triggers are known for %s; its rows can be changed.", connection.dialect.name)
        return
    try:
        for statement in statements:
            connection.exec_driver_sql(statement)
    except DBAPIError as error:
        if connection.dialect.name not in ("mysql", "mariadb"):
            raise
        # with binary logs on, MySQL lets only administrators make triggers
        _log.warning("audit_log: this account may not make triggers, so its rows can be changed (%s).", error.orig)


def unguard_audit(connection: Connection) -> None:
    """Remove what would outlive the table."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("DROP FUNCTION IF EXISTS audit_log_guard() CASCADE")
