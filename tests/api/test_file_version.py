"""The version of a SQLite file moves with what can be read from it, and with nothing else."""

import os
import sqlite3
from contextlib import closing

import pytest

from model_checkpoint.api.live.file_version import FileVersion


@pytest.fixture
def file(tmp_path):
    """A database with a log."""
    with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=wal")
        database.execute("CREATE TABLE runs (step INTEGER)")
    return tmp_path / "runs.db"


@pytest.fixture
def version(file):
    with closing(FileVersion(str(file))) as one:
        yield one


def test_it_moves_with_a_commit_and_not_before(file, version):
    first = version.read()
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size=1")  # pages go to the log before the commit
        writer.execute("BEGIN IMMEDIATE")
        writer.executemany("INSERT INTO runs VALUES (?)", [(step,) for step in range(20_000)])
        grown = os.stat(f"{file}-wal").st_size
        written = version.read()
        writer.execute("COMMIT")
        committed = version.read()

        assert grown > 0
        assert written == first != committed == version.read()


def test_it_moves_when_another_file_is_put_in_its_place(file, version, tmp_path):
    with closing(sqlite3.connect(file)) as database, closing(sqlite3.connect(tmp_path / "other.db")) as other:
        database.backup(other)
    first = version.read()
    os.replace(tmp_path / "other.db", file)

    assert first is not None
    assert first != version.read() is not None


def test_of_a_file_that_is_gone_it_tells_nothing_until_there_is_one(file, version, tmp_path):
    first = version.read()
    os.rename(file, tmp_path / "away.db")
    gone = version.read()
    os.rename(tmp_path / "away.db", file)

    assert first is not None
    assert gone is None
    assert version.read() is not None
