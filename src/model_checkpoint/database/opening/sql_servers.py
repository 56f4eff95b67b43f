"""SQL servers: engines for PostgreSQL, MySQL and whatever else SQLAlchemy knows, with a limit on every wait."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Engine, create_engine, event

CONNECT_SECONDS = 5
ANSWER_SECONDS = 60  # for one statement
LOCK_SECONDS = 20
_POSTGRESQL = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "model_checkpoint",
}
_MYSQL = {
    "connect_timeout": CONNECT_SECONDS,
    "read_timeout": ANSWER_SECONDS,
    "write_timeout": ANSWER_SECONDS,
    "charset": "utf8mb4",
}


def server_engine(url: URL, *, patient: bool = False) -> Engine:
    """An engine whose statements end in time; ``patient`` for migrations, which may rightly take hours.

    What the URL's query says wins over what is set here.
    """
    kind = {"mariadb": "mysql"}.get(url.get_backend_name(), url.get_backend_name())
    # every transaction is ended by who began it, so nothing is left to reset
    options: dict[str, Any] = {"hide_parameters": True, "pool_timeout": ANSWER_SECONDS, "pool_reset_on_return": None}
    if kind in ("postgresql", "mysql"):
        ours = dict(_POSTGRESQL if kind == "postgresql" else _MYSQL)
        if patient and kind == "mysql":
            ours |= {"read_timeout": None, "write_timeout": None}
        # each statement sees what is committed when it begins: no gaps are locked, and a lock waited for shows the new
        options["isolation_level"] = "READ COMMITTED"
        options["connect_args"] = {key: value for key, value in ours.items() if key not in url.query}
        options["pool_recycle"] = 1800
    engine = create_engine(url, **options)
    if kind in ("postgresql", "mysql"):
        statements = _limits(kind, patient=patient)
        event.listen(engine, "connect", lambda connection, record: _run(connection, statements))
    return engine


def _limits(kind: str, *, patient: bool) -> list[str]:
    if kind == "mysql":
        return ["SET SESSION sql_mode = 'STRICT_ALL_TABLES'", f"SET SESSION innodb_lock_wait_timeout = {LOCK_SECONDS}"]
    limits = [f"SET lock_timeout = '{LOCK_SECONDS}s'", "SET idle_in_transaction_session_timeout = '300s'"]
    return limits if patient else [*limits, f"SET statement_timeout = '{ANSWER_SECONDS}s'"]


def _run(connection: Any, statements: list[str]) -> None:
    cursor = connection.cursor()
    try:
        for statement in statements:
            cursor.execute(statement)
    finally:
        cursor.close()
    connection.commit()
