"""A catalog on each of the three databases, with one run in it."""

import pytest

from model_checkpoint.database import EnhancedDatabaseConnection, Experiment


@pytest.fixture
def db(database_url):
    with EnhancedDatabaseConnection(database_url) as connection:
        connection.save_experiment(Experiment(id="r1", name="baseline", start_time=100.0))
        yield connection


@pytest.fixture
def lite(sqlite_url):
    """The same on SQLite alone, for what does not depend on the database."""
    with EnhancedDatabaseConnection(sqlite_url) as connection:
        connection.save_experiment(Experiment(id="r1", name="baseline", start_time=100.0))
        yield connection
