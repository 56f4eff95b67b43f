"""Killed before any change of a migration or a roll-back: the next one carries on, and no data are lost."""

from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from tests.database.database_copies import copies_of
from tests.database.test_migrations import POINTS, fill, opened, shape_of
from tests.ground.change_kills import changes

from model_checkpoint.database import EnhancedDatabaseConnection, MigrationManager
from model_checkpoint.database.opening.database_url import read_url
from model_checkpoint.database.schema.revisions import HEAD

KINDS = ["sqlite", "postgres", "mariadb"]


def contents(url):
    """The shape and every row; of the log what was done and how it went, for each has an hour and ids of its own."""
    engine = create_engine(read_url(url))
    with engine.connect() as connection:
        shape = shape_of(connection)
        columns = {name: "action, outcome" if name == "audit_log" else "*" for name in shape if name != "with rows"}
        rows = {
            name: sorted(map(repr, connection.exec_driver_sql(f"SELECT {wanted} FROM {name}").all()))
            for name, wanted in columns.items()
        }
    engine.dispose()
    return shape, rows


def rolled_back(url):
    with MigrationManager(url) as manager:
        manager.rollback("0001", backup=False)


def half_backups(url):
    """Files beside a database file that were to become a backup."""
    return sorted(one.name for one in Path(url.removeprefix("sqlite:///")).parent.glob("*.partial*"))


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("old", [True, False], ids=["migrating", "creating"])
def test_killed_before_any_change_it_is_carried_on_by_the_next(request, tmp_path, kind, old):
    copies = copies_of(request, tmp_path, kind)
    first = copies.empty()
    if old:
        fill(first)
        rolled_back(first)
    with copies.another(first) as url:
        total = changes(partial(opened, url))
        good = contents(url)
    assert total > 20

    for die_at in range(1, total + 1):
        with copies.another(first) as url:
            changes(partial(opened, url), die_at=die_at)
            with EnhancedDatabaseConnection(url) as db:
                assert (db.revision, contents(url), half_backups(url)) == (HEAD, good, [])
                if old:
                    assert len(db.get_metrics("r1")) == len(POINTS) + 1
                    assert [one.id for one in db.best("r1", "acc", "max", 1)] == ["c2"]
                db.record_audit("save")
                with pytest.raises(Exception, match="append-only"), db._pool.engine().begin() as connection:
                    connection.execute(text("DELETE FROM audit_log"))


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("kind", KINDS)
def test_a_roll_back_killed_before_any_change_is_carried_on_and_loses_no_data(request, tmp_path, kind):
    copies = copies_of(request, tmp_path, kind)
    first = copies.empty()
    fill(first)
    with copies.another(first) as url:
        total = changes(partial(rolled_back, url))
        good = contents(url)
        with EnhancedDatabaseConnection(url) as db:
            assert (db.revision, len(db.get_metrics("r1"))) == (HEAD, len(POINTS) + 1)
            assert [one.id for one in db.best("r1", "acc", "max", 1)] == ["c2"]
    assert total > 10

    for die_at in range(1, total + 1):
        with copies.another(first) as url:
            changes(partial(rolled_back, url), die_at=die_at)
            rolled_back(url)
            assert contents(url) == good
