"""Opening a database: the right file, settings and time limits; nothing secret is told; forks and threads are safe."""

import io
import logging
import os
import pickle
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event, text
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.base import SQLiteTypeCompiler
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from tests.ground.database_servers import PASSWORD

from model_checkpoint.database import (
    Checkpoint,
    DatabaseBusy,
    DatabaseClosed,
    DatabaseUnreachable,
    EnhancedDatabaseConnection,
    Experiment,
    Metric,
    MigrationFailed,
    RowRefused,
    SchemaOutdated,
    SchemaTooNew,
    open_catalog,
    register_connection,
)
from model_checkpoint.database.opening import network_files, sqlite_files, transactions
from model_checkpoint.errors import OptionInvalid


def pragma(db, name):
    with db._pool.engine().connect() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def test_a_sqlite_file_has_a_write_ahead_log_foreign_keys_and_patience(lite):
    assert (pragma(lite, "journal_mode"), pragma(lite, "foreign_keys")) == ("wal", 1)
    assert pragma(lite, "busy_timeout") == 30_000


def test_checkpoint_rows_are_flushed_and_metrics_are_not(lite):
    """A row that was acknowledged survives a power failure; points of the last moments may not."""
    engine, seen = lite._pool.engine(), []
    event.listen(
        engine, "commit", lambda connection: seen.append(connection.exec_driver_sql("PRAGMA synchronous").scalar())
    )
    lite.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
    lite.write_metrics([Metric("r1", "first", 0.5)])
    seen.clear()
    lite.write_metrics([Metric("r1", "first", 0.5)])
    lite.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))

    assert [level for level in seen if level is not None][-1] == 2
    assert 1 in seen


def test_a_file_stays_where_it_was_when_the_folder_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with EnhancedDatabaseConnection("sqlite:///new/folder/catalog.db") as db:
        db.save_experiment(Experiment(id="r1", name="x"))
        monkeypatch.chdir("/")
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: db.get_experiment("r1").name, range(8)))

    assert found == ["x"] * 8
    assert (tmp_path / "new" / "folder" / "catalog.db").exists()


def test_a_network_file_system_has_no_write_ahead_log_and_is_told_of_once(tmp_path, monkeypatch, caplog):
    """Its kind is read by statfs; here the local one is declared to be a network's."""
    monkeypatch.setitem(network_files.NETWORK_KINDS, network_files._file_system(tmp_path), "NFS")
    for _ in range(2):
        with EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/catalog.db") as db:
            db.save_experiment(Experiment(id="r1", name="x"))

            assert pragma(db, "journal_mode") == "truncate"
            assert db.get_experiment("r1").name == "x"

    told = [record.getMessage() for record in caplog.records if "network file system (NFS)" in record.getMessage()]
    assert len(told) == 1


def test_a_file_with_a_log_opened_over_a_network_gives_it_up(tmp_path, monkeypatch):
    with EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/catalog.db") as db:
        db.save_experiment(Experiment(id="r1", name="x"))
    monkeypatch.setitem(network_files.NETWORK_KINDS, network_files._file_system(tmp_path), "NFS")

    with EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/catalog.db") as db:
        assert (pragma(db, "journal_mode"), db.get_experiment("r1").name) == ("truncate", "x")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("experiments.db", r"'experiments.db' is no URL. For a file write 'sqlite:///experiments.db'"),
        ("sqlite//x:y", "not a URL such as"),
        ("nosuchdb://host/x", "SQLAlchemy has no dialect for it"),
    ],
)
def test_what_is_no_url_is_refused_with_the_right_one(url, message):
    with pytest.raises(OptionInvalid, match=message):
        EnhancedDatabaseConnection(url)


def test_what_cannot_be_opened_is_unreachable(tmp_path):
    (tmp_path / "plain.txt").write_text("no database at all, but long enough to have a header" * 40)
    (tmp_path / "folder.db").mkdir()

    with pytest.raises(DatabaseUnreachable, match=r"plain.txt: cannot be used \(file is not a database\)"):
        EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/plain.txt")
    with pytest.raises(DatabaseUnreachable, match=r"folder.db: cannot be used \(unable to open database file\)"):
        EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/folder.db")
    with pytest.raises(ConnectionError, match="cannot be opened"):
        EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/plain.txt/below/x.db")


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])
def test_no_server_is_told_at_once_and_without_the_password(kind, caplog):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"{kind}://ann:{PASSWORD}@127.0.0.1:{free.getsockname()[1]}/runs"
    caplog.set_level(logging.DEBUG)
    start = time.monotonic()

    with pytest.raises(
        DatabaseUnreachable, match=r"ann:\*\*\*@127.0.0.1.*cannot be used .*Check that it runs"
    ) as caught:
        EnhancedDatabaseConnection(url)

    assert time.monotonic() - start < 20
    told = (
        "".join(traceback.format_exception(caught.value)) + caplog.text + repr(pickle.loads(pickle.dumps(caught.value)))
    )
    assert PASSWORD not in told


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_server_that_never_answers_is_given_up(kind):
    """A machine that takes connections and says nothing must not hold a training run."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"{kind}://ann@127.0.0.1:{silent.getsockname()[1]}/runs?connect_timeout=2"
        if kind == "mysql":
            url += "&read_timeout=2"

        with pytest.raises(DatabaseUnreachable, match="cannot be used"):
            EnhancedDatabaseConnection(url)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["postgres", "mariadb"])
def test_a_wrong_password_is_not_told(request, server, caplog):
    url = request.getfixturevalue(f"{server}_url").replace(PASSWORD, "wrong-secret")
    caplog.set_level(logging.DEBUG)

    with pytest.raises(DatabaseUnreachable, match="cannot be used") as caught:
        EnhancedDatabaseConnection(url)

    assert "wrong-secret" not in "".join(traceback.format_exception(caught.value)) + caplog.text


@pytest.mark.slow
def test_a_server_that_is_full_for_a_moment_is_waited_for(postgres, postgres_url):
    postgres.admin("DROP ROLE IF EXISTS narrow")
    postgres.admin(f"CREATE ROLE narrow LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 1")
    with EnhancedDatabaseConnection(postgres_url) as db:
        db.save_experiment(Experiment(id="r1", name="x"))
        with db._pool.engine().begin() as connection:
            connection.exec_driver_sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO narrow")
    url = postgres_url.replace("mckpt:", "narrow:")
    first, second = EnhancedDatabaseConnection(url), EnhancedDatabaseConnection(url, lazy=True)

    threading.Timer(0.5, first.close).start()

    assert second.get_experiment("r1").name == "x"
    second.close()


def test_errors_are_the_builtins_callers_expect_and_travel(lite):
    assert issubclass(DatabaseUnreachable, ConnectionError)
    assert issubclass(DatabaseBusy, TimeoutError)
    for cls in (
        DatabaseUnreachable,
        DatabaseBusy,
        RowRefused,
        DatabaseClosed,
        SchemaTooNew,
        SchemaOutdated,
        MigrationFailed,
    ):
        copy = pickle.loads(pickle.dumps(cls("here: wrong. Next step.")))
        assert (type(copy), str(copy)) == (cls, "here: wrong. Next step.")
    assert pickle.loads(pickle.dumps(MigrationFailed("x", backup="there"))).backup == "there"


def test_values_of_a_refused_row_are_not_told(db, caplog):
    """A config may hold keys; SQLAlchemy would print it."""
    secret = "-".join(("sk", "very", "secret"))
    with pytest.raises(RowRefused, match="refused the row") as caught:
        db.save_checkpoint(Checkpoint(id="c1", experiment_id="nobody", notes=secret))

    assert secret not in "".join(traceback.format_exception(caught.value)) + caplog.text


def test_a_lazy_connection_opens_when_it_is_used(tmp_path):
    db = EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/catalog.db", lazy=True)

    assert not (tmp_path / "catalog.db").exists()
    assert db.revision == ""
    assert db.list_experiments().items == []
    assert db.revision != ""
    db.close()


def test_a_closed_connection_says_so(sqlite_url):
    db = EnhancedDatabaseConnection(sqlite_url)
    db.close()
    db.close()

    with pytest.raises(DatabaseClosed, match=r"the connection was closed. Open another one"):
        db.get_experiment("r1")


def test_who_waits_too_long_for_a_lock_is_told(lite, monkeypatch):
    monkeypatch.setattr(transactions, "_PATIENCE", 0.3)
    monkeypatch.setattr(sqlite_files, "BUSY_SECONDS", 0.1)
    with EnhancedDatabaseConnection(lite._pool.url) as other:
        holder = sqlite3.connect(lite._pool.url.database, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")

        with pytest.raises(DatabaseBusy, match=r"others held it for too long \(database is locked\)"):
            other.save_experiment(Experiment(id="r2", name="x"))
        assert other.get_experiment("r1") is not None  # readers do not wait
        holder.execute("ROLLBACK")
        holder.close()
        other.save_experiment(Experiment(id="r2", name="x"))


class PlainTypes(SQLiteTypeCompiler):
    """Large integers count up by themselves, as they do on most databases."""

    def visit_big_integer(self, type_, **options):
        return "INTEGER"


class PlainSQL(SQLiteDialect_pysqlite):
    """A dialect our code has never heard of."""

    name = "plainsql"
    type_compiler_cls = PlainTypes
    supports_statement_cache = True


def test_any_dialect_of_sqlalchemy_works(tmp_path, caplog):
    """Without knowing how it says 'insert or leave', what its clock is called, or how it guards a table."""
    registry.register("plainsql", __name__, "PlainSQL")
    with EnhancedDatabaseConnection(f"plainsql:///{tmp_path}/other.db") as db:
        db.save_experiment(Experiment(id="r1", name="x"))
        assert db.write_metrics([Metric("r1", "loss", float("nan"), 1, 1.0)] * 2) == 1
        db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", metrics={"acc": 0.5}))
        db.heartbeat("r1", step=3)

        assert db.best("r1", "acc")[0].id == "c1"
        assert abs(db.get_experiment("r1").last_seen - time.time()) < 60
    assert "no triggers are known for plainsql" in caplog.text


def test_a_class_registered_for_a_scheme_serves_it(tmp_path):
    class Ours(EnhancedDatabaseConnection):
        def __init__(self, database_url, auto_migrate=True):
            super().__init__(f"sqlite:///{tmp_path}/ours.db", auto_migrate)

    register_connection("ourdb", Ours)

    with open_catalog("ourdb://anything") as db:
        assert isinstance(db, Ours)
    with open_catalog(f"sqlite:///{tmp_path}/plain.db") as db:
        assert type(db) is EnhancedDatabaseConnection
    with pytest.raises(
        OptionInvalid, match=r"StringIO cannot serve other: it lacks add_audit, add_edge, audit, beginnings, best"
    ):
        register_connection("other", io.StringIO)


def test_the_room_is_not_imported_before_it_is_used():
    code = "import model_checkpoint, model_checkpoint.database, sys; print('sqlalchemy' in sys.modules)"
    code += "; model_checkpoint.database.EnhancedDatabaseConnection('sqlite://'); print('alembic' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ})

    assert (done.stdout, done.stderr) == ("False\nFalse\n", "")


def test_raw_sql_finds_readable_tables(lite):
    """The tables are for people too."""
    lite.write_metrics([Metric("r1", "loss", 0.5, 1, 1.0)])
    query = "SELECT e.name, k.name, m.value FROM experiment_metrics m JOIN experiments e ON e.number = m.experiment "
    query += "JOIN metric_keys k ON k.id = m.key"

    with lite._pool.engine().connect() as connection:
        assert connection.execute(text(query)).all() == [("baseline", "loss", 0.5)]
