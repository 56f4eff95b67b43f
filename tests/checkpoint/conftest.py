"""A run and managers of it, on each of the three databases or on SQLite alone."""

import pytest

from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker


@pytest.fixture
def catalog_url(request, sqlite_url):
    """Where the run is recorded: a SQLite file, or each of the three databases for who asks for ``database_url``."""
    return request.getfixturevalue("database_url") if "database_url" in request.fixturenames else sqlite_url


@pytest.fixture
def run(catalog_url):
    with ExperimentTracker("baseline", project_name="tests", tags=["a"], database_url=catalog_url) as tracker:
        yield tracker
    tracker.connection.close()


@pytest.fixture
def make(run, tmp_path):
    """Make a manager of the run; all are closed at the end."""
    made = []

    def manager(tracker=run, folder=f"{tmp_path}/root", **options):
        made.append(EnhancedCheckpointManager(tracker, folder, **{"max_checkpoints": None, **options}))
        return made[-1]

    yield manager
    for one in made:
        one.close()


@pytest.fixture
def manager(make):
    return make()


@pytest.fixture
def served(database_url, tmp_path):
    """A manager whose run is on each of the three databases."""
    tracker = ExperimentTracker("baseline", database_url=database_url)
    with tracker, EnhancedCheckpointManager(tracker, f"{tmp_path}/root", max_checkpoints=None) as manager:
        yield manager
    tracker.connection.close()
