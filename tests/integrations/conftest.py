"""A catalog for the runs of one test."""

import pytest

from model_checkpoint.database import EnhancedDatabaseConnection


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def catalog(url):
    with EnhancedDatabaseConnection(url) as connection:
        yield connection
