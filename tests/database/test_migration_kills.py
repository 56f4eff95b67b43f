"""Killed before any change of a migration or a roll-back: the next one carries on, and no data are lost."""

import multiprocessing
import os
import shutil
import signal

import pytest
from sqlalchemy import Engine, event, text
from tests.database.test_migrations import POINTS, fill, opened, shape

from model_checkpoint.database import EnhancedDatabaseConnection, MigrationManager
from model_checkpoint.database.schema.schema_version import HEAD


def writes(url, *, die_at=None, work=None):
    """Open a database, or do ``work`` to it, in a child that is killed before one of its changes; count these."""
    context = multiprocessing.get_context("fork")
    count = context.Value("i", 0)

    def note():
        count.value += 1
        if count.value == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def run():
        changes = ("CREATE", "DROP", "INSERT", "UPDATE", "DELETE")
        event.listen(
            Engine, "before_cursor_execute", lambda c, _, sql, *rest: sql.lstrip().startswith(changes) and note()
        )
        event.listen(Engine, "commit", lambda connection: note())
        (work or opened)(url)

    child = context.Process(target=run)
    child.start()
    child.join(120)
    assert child.exitcode == (0 if die_at is None else -signal.SIGKILL)
    return count.value


class Copies:
    """As many copies of one database as are asked for."""

    def __init__(self, request, folder, kind, old):
        self.kind, self._folder = kind, folder
        self._server = None if kind == "sqlite" else request.getfixturevalue(kind)
        self._old = old
        self._first = self._empty("first")
        if old:
            fill(self._first)
            with MigrationManager(self._first) as manager:
                manager.rollback("0001", backup=False)

    def _empty(self, name):
        return f"sqlite:///{self._folder}/{name}.db" if self.kind == "sqlite" else self._server.new_database()

    def another(self, name):
        if self.kind == "postgres":
            url = self._server.url(f"copy{os.getpid()}_{id(self)}_{name}")
            self._server.admin(f"CREATE DATABASE {url.rpartition('/')[2]} TEMPLATE {self._first.rpartition('/')[2]}")
            return url
        url = self._empty(name)
        if self._old and self.kind == "sqlite":
            shutil.copyfile(self._folder / "first.db", self._folder / f"{name}.db")
        elif self._old:
            fill(url)
            with MigrationManager(url) as manager:
                manager.rollback("0001", backup=False)
        return url


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize(("kind", "every"), [("sqlite", 1), ("postgres", 15), ("mariadb", 4)])
@pytest.mark.parametrize("old", [True, False], ids=["migrating", "creating"])
def test_killed_before_any_change_it_is_carried_on_by_the_next(request, tmp_path, kind, every, old):
    copies = Copies(request, tmp_path, kind, old)
    url = copies.another("whole")
    total, good = writes(url), shape(url)
    assert total > 20

    for die_at in [*range(1, total, every), total]:
        url = copies.another(die_at)
        writes(url, die_at=die_at)
        with EnhancedDatabaseConnection(url) as db:
            assert (db.revision, shape(url)) == (HEAD, good)
            if old:
                assert len(db.get_metrics("r1")) == len(POINTS) + 1
                assert [one.id for one in db.best("r1", "acc", "max", 1)] == ["c2"]
            db.record_audit("save")
            with pytest.raises(Exception, match="append-only"), db._pool.engine().begin() as connection:
                connection.execute(text("DELETE FROM audit_log"))


def rolled_back(url):
    with MigrationManager(url) as manager:
        manager.rollback("0001", backup=False)


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize(("kind", "every"), [("sqlite", 1), ("postgres", 15), ("mariadb", 3)])
def test_a_roll_back_killed_before_any_change_is_carried_on_and_loses_no_data(request, tmp_path, kind, every):
    copies = Copies(request, tmp_path, kind, old=True)

    def newest(name):
        url = copies.another(name)
        opened(url)
        return url

    url = newest("whole")
    total, good = writes(url, work=rolled_back), shape(url)
    assert total > 10

    for die_at in [*range(1, total, every), total]:
        url = newest(die_at)
        writes(url, die_at=die_at, work=rolled_back)
        rolled_back(url)
        assert shape(url) == good
        with EnhancedDatabaseConnection(url) as db:
            assert (db.revision, len(db.get_metrics("r1"))) == (HEAD, len(POINTS) + 1)
            assert [one.id for one in db.best("r1", "acc", "max", 1)] == ["c2"]
