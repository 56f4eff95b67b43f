"""Database copies: one prepared database, as often as a test wants it, each in some milliseconds."""

import shutil
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pymysql
from tests.ground.database_servers import PASSWORD


def copies_of(request, folder, kind):
    """What makes copies on one kind of database, until the test is over."""
    if kind == "sqlite":
        return FileCopies(folder)
    made = (TemplateCopies if kind == "postgres" else ReplayedCopies)(request.getfixturevalue(kind))
    request.addfinalizer(made.connection.close)
    return made


class FileCopies:
    """SQLite: a copy of the file, in a folder of its own."""

    def __init__(self, folder):
        self._folder, self._numbers = folder, count()

    def empty(self):
        place = self._folder / str(next(self._numbers))
        place.mkdir()
        return f"sqlite:///{place}/catalog.db"

    @contextmanager
    def another(self, first):
        url = self.empty()
        if _file(first).exists():
            shutil.copyfile(_file(first), _file(url))
        yield url
        shutil.rmtree(_file(url).parent)


class TemplateCopies:
    """PostgreSQL: the server makes a database like another."""

    def __init__(self, server):
        self._server, self._numbers = server, count()
        self.connection = psycopg.connect(server.url("postgres"), autocommit=True)

    def empty(self):
        return self._server.new_database()

    @contextmanager
    def another(self, first):
        name = f"{_name(first)}_{next(self._numbers)}"
        self.connection.execute(f"CREATE DATABASE {name} TEMPLATE {_name(first)}")
        yield self._server.url(name)
        self.connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


class ReplayedCopies:
    """MariaDB: the statements that make the tables, the rows and the triggers, once more."""

    def __init__(self, server):
        self._server, self._numbers, self._scripts = server, count(), {}
        place = {"host": "127.0.0.1", "port": server.port, "user": "mckpt", "password": PASSWORD}
        self.connection = pymysql.connect(**place, ssl_disabled=True, autocommit=True)

    def empty(self):
        return self._server.new_database()

    @contextmanager
    def another(self, first):
        name = f"{_name(first)}_{next(self._numbers)}"
        with self.connection.cursor() as cursor:
            if first not in self._scripts:
                self._scripts[first] = _script(cursor, _name(first))
            for statement in (f"CREATE DATABASE {name}", f"USE {name}", *self._scripts[first]):
                cursor.execute(statement)
            yield f"{self._server.url(name)}?ssl_disabled=1"  # else each connection reads all certificates there are
            cursor.execute(f"DROP DATABASE {name}")


def _script(cursor, database):
    def asked(statement, column):
        cursor.execute(statement)
        return [row[column] for row in cursor.fetchall()]

    cursor.execute(f"USE {database}")
    tables = asked("SHOW TABLES", 0)
    make = [asked(f"SHOW CREATE TABLE {name}", 1)[0] for name in tables]
    fill = [f"INSERT INTO {name} SELECT * FROM {database}.{name}" for name in tables]
    guard = [asked(f"SHOW CREATE TRIGGER {name}", 2)[0] for name in asked("SHOW TRIGGERS", 0)]
    return ["SET foreign_key_checks = 0", *make, *fill, *guard]


def _name(url):
    return url.rpartition("/")[2]


def _file(url):
    return Path(url.removeprefix("sqlite:///"))
