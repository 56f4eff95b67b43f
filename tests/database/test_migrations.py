"""Migrations: forward and back, with a backup before; a newer schema is read-only."""

import logging
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from model_checkpoint.database import (
    Checkpoint,
    EnhancedDatabaseConnection,
    Experiment,
    Metric,
    MigrationFailed,
    MigrationManager,
    RowRefused,
    SchemaOutdated,
    SchemaTooNew,
)
from model_checkpoint.database.opening.database_url import read_url
from model_checkpoint.database.schema.revisions import HEAD, REVISIONS, VERSION_TABLE
from model_checkpoint.errors import OptionInvalid

NAN, INF = float("nan"), float("inf")
POINTS = [
    Metric("r1", name, value, step, 1.5) for name in ("a", "b") for step, value in enumerate([0.5, NAN, -INF, 0.25])
]
ALL_NAN = [Metric("r1", "c", NAN, 1, 1.0)]


def fill(url):
    with EnhancedDatabaseConnection(url) as db:
        db.save_experiment(Experiment(id="r1", name="old"))
        db.write_metrics([*POINTS, *ALL_NAN])
        for step in range(4):
            metrics = {"acc": step / 4, "odd": NAN}
            db.save_checkpoint(Checkpoint(id=f"c{step}", experiment_id="r1", step=step, loss=-step, metrics=metrics))
        db.delete_checkpoint("c3")
        return db.summaries("r1")


@pytest.fixture
def old_url(database_url):
    """A database as the first revision left it, with data."""
    fill(database_url)
    with MigrationManager(database_url) as manager:
        manager.rollback("0001", backup=False)
    return database_url


def tables(url):
    engine = create_engine(read_url(url))
    names = set(inspect(engine).get_table_names())
    engine.dispose()
    return names


def shape(url):
    """Columns, keys and indexes of every table."""
    engine = create_engine(read_url(url))
    with engine.connect() as connection:
        found = shape_of(connection)
    engine.dispose()
    return found


def shape_of(connection):
    look = inspect(connection)
    columns, keys, indexes, foreign, unique = (
        {name: found for (_, name), found in ask().items() if "backup" not in name}
        for ask in (
            look.get_multi_columns,
            look.get_multi_pk_constraint,
            look.get_multi_indexes,
            look.get_multi_foreign_keys,
            look.get_multi_unique_constraints,
        )
    )
    found = {
        name: (
            [(c["name"], str(c["type"]), c["nullable"]) for c in columns[name]],
            keys[name]["constrained_columns"],
            sorted((i["name"], tuple(map(str, i["column_names"])), i["unique"], _condition(i)) for i in indexes[name]),
            sorted((tuple(f["constrained_columns"]), f["referred_table"], str(f["options"])) for f in foreign[name]),
            sorted(tuple(u["column_names"]) for u in unique[name]),
        )
        for name in columns
    }
    if connection.dialect.name == "sqlite":
        listed = connection.exec_driver_sql("PRAGMA table_list")
        found["with rows"] = {one.name: one.wr for one in listed if one.name in columns}
    return found


def _condition(index):
    """What an index is limited to."""
    return sorted(str(value) for key, value in index.get("dialect_options", {}).items() if key.endswith("_where"))


def test_an_old_database_is_brought_up_to_date_with_all_it_has(old_url, database_url):
    with EnhancedDatabaseConnection(old_url) as db:
        assert db.revision == HEAD
        assert sorted(map(repr, db.get_metrics("r1"))) == sorted(map(repr, [*POINTS, *ALL_NAN]))
        found = {one.metric_name: one for one in db.summaries("r1")}
        assert (found["a"].count, found["a"].nan_count, found["a"].last) == (4, 1, 0.25)
        assert (found["a"].min, found["a"].min_step, found["a"].max, found["a"].max_step) == (-INF, 2, 0.5, 0)
        assert (found["c"].min, found["c"].max, found["c"].nan_count) == (None, None, 1)
        assert [one.id for one in db.best("r1", "acc", "max", 9)] == ["c2", "c1", "c0"]
        assert [one.id for one in db.best("r1", "loss", "min", 1)] == ["c2"]
        assert db.best("r1", "odd") == []
        assert [(one.action, one.details["from"], one.details["to"]) for one in db.audit().items] == [
            ("migrate", "0001", HEAD)
        ]


def test_summaries_made_by_a_migration_are_those_made_by_writing(database_url):
    before = fill(database_url)
    with MigrationManager(database_url) as manager:
        manager.rollback("0001")
        manager.migrate()

    with EnhancedDatabaseConnection(database_url) as db:
        assert repr(db.summaries("r1")) == repr(before)


def test_a_migrated_database_has_the_tables_a_fresh_one_has(old_url, request):
    kind = request.node.callspec.params["database_url"]
    with EnhancedDatabaseConnection(old_url):
        pass
    if kind == "sqlite":
        fresh_url = old_url.replace("catalog.db", "fresh.db")
    else:
        fresh_url = request.getfixturevalue(kind).new_database()
    with EnhancedDatabaseConnection(fresh_url) as db:
        db.save_experiment(Experiment(id="r1", name="x"))

    assert shape(old_url) == shape(fresh_url)
    for url in (old_url, fresh_url):
        with MigrationManager(url) as manager:
            assert manager.validate_migrations() == []


def test_every_revision_goes_forward_and_back(old_url):
    with MigrationManager(old_url) as manager:
        assert manager.get_pending_migrations() == list(REVISIONS[1:])
        for target in (*REVISIONS[1:], *REVISIONS[-2::-1], HEAD):
            manager.migrate(target, backup=False)
            assert manager.get_current_version() == target
            assert manager.get_applied_migrations() == list(REVISIONS[: REVISIONS.index(target) + 1])
        assert manager.migrate() is None
        with pytest.raises(OptionInvalid, match=r"revision '0042' is unknown; there are 0001, 0002"):
            manager.migrate("0042")

    with EnhancedDatabaseConnection(old_url) as db:
        assert len(db.get_metrics("r1")) == len(POINTS) + 1
        assert [one.id for one in db.best("r1", "acc", "max", 1)] == ["c2"]
        db.record_audit("save")
        with pytest.raises(Exception, match="append-only"), db._pool.engine().begin() as connection:
            connection.execute(text("DELETE FROM audit_log"))


def test_a_migration_of_a_file_keeps_a_backup_that_opens(sqlite_url, tmp_path):
    fill(sqlite_url)
    news = []
    with MigrationManager(sqlite_url, notify=news.append) as manager:
        change = manager.rollback("0001")

    backup = Path(change.backup)
    assert backup.parent == tmp_path
    assert [(one.moment, one.from_revision, one.to_revision, one.backup) for one in news] == [
        ("before", HEAD, "0001", change.backup),
        ("after", HEAD, "0001", change.backup),
    ]
    assert list(tmp_path.glob("*.partial*")) == []
    with EnhancedDatabaseConnection(f"sqlite:///{backup}") as db:
        assert len(db.get_metrics("r1")) == len(POINTS) + 1
        assert db.revision == HEAD


def test_a_roll_back_is_told_by_the_log_that_stays_or_by_that_of_the_backup(sqlite_url):
    def told(url):
        with EnhancedDatabaseConnection(url) as db:
            found = [one for one in db.audit(action="migrate").items if one.details["to"] != HEAD]
            return [(one.outcome, one.details["from"], one.details["to"]) for one in found]

    fill(sqlite_url)
    with MigrationManager(sqlite_url) as manager:
        manager.rollback("0003")
        manager.migrate()
        assert told(sqlite_url) == [("ok", HEAD, "0003"), ("begun", HEAD, "0003")]
        backup = manager.rollback("0001").backup

    assert told(f"sqlite:///{backup}") == [("begun", HEAD, "0001"), ("ok", HEAD, "0003"), ("begun", HEAD, "0003")]
    assert told(sqlite_url) == []  # the log went with the roll-back, and begins anew


@pytest.mark.slow
@pytest.mark.parametrize("server", ["postgres", "mariadb"])
def test_a_migration_on_a_server_keeps_a_copy_of_every_table(request, server):
    url = request.getfixturevalue(f"{server}_url")
    fill(url)
    before = tables(url)
    with MigrationManager(url) as manager:
        label = manager.rollback("0001").backup.removeprefix("tables ").removesuffix("_*")

    copies = {name.removeprefix(f"{label}_") for name in tables(url) if name.startswith(label)}
    assert copies == before
    engine = create_engine(read_url(url))
    with engine.connect() as connection:
        assert connection.exec_driver_sql(f"SELECT count(*) FROM {label}_metric_summaries").scalar() == 3
        last = connection.exec_driver_sql(f"SELECT outcome FROM {label}_audit_log ORDER BY number DESC").scalar()
        assert last == "begun"  # the log that went tells by its copy why
    engine.dispose()


def test_who_listens_hears_of_a_migration_made_by_opening(old_url):
    news = []

    with EnhancedDatabaseConnection(old_url, notify=news.append):
        pass

    assert [(one.moment, one.to_revision) for one in news] == [("before", HEAD), ("after", HEAD)]
    assert "***" in news[0].database or news[0].database.startswith("sqlite")


def test_without_auto_migrate_an_old_or_empty_database_is_refused(old_url, tmp_path):
    with pytest.raises(SchemaOutdated, match=r"of an earlier version \(revision 0001, needed .*MigrationManager"):
        EnhancedDatabaseConnection(old_url, auto_migrate=False)
    with pytest.raises(SchemaOutdated, match=r"has no catalog yet"):
        EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/none.db", auto_migrate=False)


def test_a_newer_database_can_be_read_and_not_written(database_url, caplog):
    fill(database_url)
    engine = create_engine(read_url(database_url))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")

    with EnhancedDatabaseConnection(database_url) as db:
        assert db.read_only
        assert db.get_experiment("r1").name == "old"
        assert db.best("r1", "acc", "max")[0].id == "c2"
        with pytest.raises(SchemaTooNew, match=rf"revision 9999 .*knows up to {HEAD}.*pip install -U model-checkpoint"):
            db.save_checkpoint(Checkpoint(id="c9", experiment_id="r1"))
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE lineage_edges")
        with pytest.raises(SchemaTooNew, match="cannot be read here either"):
            db.edges()
    engine.dispose()

    assert "is opened read-only" in caplog.text
    with (
        MigrationManager(database_url) as manager,
        pytest.raises(OptionInvalid, match="'9999', which this version cannot"),
    ):
        manager.migrate()


def test_tables_of_another_program_are_left_alone(database_url):
    engine = create_engine(read_url(database_url))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE experiments (id INTEGER)")
    engine.dispose()

    with pytest.raises(RowRefused, match=r"has tables named experiments that are not ours. Use a database of its own"):
        EnhancedDatabaseConnection(database_url)

    assert tables(database_url) == {"experiments"}


def test_a_migration_that_fails_changes_nothing_and_names_the_backup(sqlite_url):
    fill(sqlite_url)
    with MigrationManager(sqlite_url) as manager:
        manager.rollback("0001")
        file = sqlite_url.removeprefix("sqlite:///")
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE checkpoints SET metrics = '{broken' WHERE id = 'c1'")

        with pytest.raises(
            MigrationFailed, match=r"the migration ended early .*The data of before are kept: "
        ) as caught:
            manager.migrate()

        assert Path(caught.value.backup).exists()
        assert manager.get_current_version() == "0001"
    assert "metric_summaries" not in tables(sqlite_url)


def opened(url):
    EnhancedDatabaseConnection(url).close()


def test_the_log_of_a_migration_says_from_where_to_where(old_url, caplog):
    caplog.set_level(logging.INFO, logger="model_checkpoint")

    opened(old_url)

    assert f"migrating from revision 0001 to {HEAD}, backup:" in caplog.text
