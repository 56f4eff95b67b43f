"""Change kills: some work done by a process that is killed before any one of its changes to files or to a database."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event

_READS = ("SELECT", "PRAGMA", "SHOW", "DESCRIBE", "BEGIN", "--")  # the last: what a statement does inside
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")
_WRITING = os.O_WRONLY | os.O_RDWR


def changes(work: Callable[[], object], *, die_at: int = 0) -> int:
    """Do some work in a child of ours, which is killed before the change of that number, if any; count its changes."""
    context = multiprocessing.get_context("fork")
    count = context.Value("i", 0)

    def note() -> None:
        count.value += 1
        if count.value == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    child = context.Process(target=_listened, args=(work, note))
    child.start()
    child.join(120)
    assert child.exitcode == (-signal.SIGKILL if die_at else 0), f"ended with {child.exitcode} at change {die_at}"
    return int(count.value)


def _listened(work: Callable[[], object], note: Callable[[], None]) -> None:
    def heard(statement: str) -> None:
        if not statement.lstrip().upper().startswith(_READS):
            note()

    def happened(name: str, details: tuple[Any, ...]) -> None:
        if name in _CHANGES or (name == "open" and isinstance(details[2], int) and details[2] & _WRITING):
            note()

    _listen_to_statements(heard)
    sys.addaudithook(happened)
    work()


def _listen_to_statements(heard: Callable[[str], None]) -> None:
    def trace(connection: Any, _record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.set_trace_callback(heard)  # statements may go past the engine there

    def executed(connection: Any, _cursor: object, statement: str, *_rest: object) -> None:
        if connection.dialect.name != "sqlite":
            heard(statement)

    def committed(connection: Any) -> None:
        if connection.dialect.name != "sqlite":
            heard("COMMIT")

    event.listen(Engine, "connect", trace)
    event.listen(Engine, "before_cursor_execute", executed)
    event.listen(Engine, "commit", committed)
