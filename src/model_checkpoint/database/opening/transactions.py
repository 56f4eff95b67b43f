"""Transactions: run a piece of work in one short transaction, until it is through or cannot be.

Work may run several times, so it changes nothing but the database, and the same work twice leaves what once leaves:
also when a connection breaks while the commit is under way, and nobody can tell whether it took place.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from model_checkpoint import forks
from model_checkpoint.database.opening.database_url import is_sqlite
from model_checkpoint.database.opening.failures import Meaning, meaning_of, own_error, told_alike, typed
from model_checkpoint.database.opening.pool import DatabasePool
from model_checkpoint.database.opening.sqlite_files import READ, RELAXED, WRITE, transact

T = TypeVar("T")
Work = Callable[[Connection], T]

_PATIENCE = 60.0  # seconds in all for what passes
_FIRST_WAIT, _LONGEST_WAIT = 0.005, 1.0
_chance = random.Random()  # of our own: the numbers of a training are not for us to draw
_TRIES = {Meaning.LOST: 2, Meaning.REFUSED: 3, Meaning.FINAL: 1}


class Transactions:
    """Reads and writes of one pool."""

    def __init__(self, pool: DatabasePool) -> None:
        self.pool = pool

    def read(self, work: Work[T]) -> T:
        """Run ``work``, which reads, on one state of the database."""
        return self._run(work, READ)

    def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Run ``work`` and commit; unless ``durable``, the last moments may go when the power fails."""
        return self._run(work, WRITE if durable else RELAXED)

    def _run(self, work: Work[T], mode: str) -> T:
        deadline, wait = time.monotonic() + _PATIENCE, _FIRST_WAIT
        tries: dict[Meaning, int] = {}
        while True:
            try:
                return self._once(work, mode)
            except (SQLAlchemyError, sqlite3.Error) as raised:
                error = told_alike(raised)
                ours = own_error(error)
                if ours is not None:
                    raise ours from None
                meaning = meaning_of(error)
                tries[meaning] = tries.get(meaning, 0) + 1
                if tries[meaning] >= _TRIES.get(meaning, tries[meaning] + 1) or time.monotonic() > deadline:
                    raise typed(error, meaning, self.pool.where, self.pool.url) from error
            time.sleep(wait * _chance.random())
            wait = min(2 * wait, _LONGEST_WAIT)

    def _once(self, work: Work[T], mode: str) -> T:
        if not is_sqlite(self.pool.url):
            with self.pool.engine().connect() as connection, connection.begin():
                return work(connection)
        # SQLite notes inside the process who holds which lock, and a child forked in between would wait for it for ever
        with forks.kept_whole(), self.pool.lent() as connection:
            return transact(connection, mode, work)
