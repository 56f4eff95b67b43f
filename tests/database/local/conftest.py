"""A file of odd rows, which a whole connection made."""

import pytest
from tests.database.local.odd_catalog import fill


@pytest.fixture(scope="module")
def odd_url(tmp_path_factory):
    where = f"sqlite:///{tmp_path_factory.mktemp('local')}/a b.db"
    fill(where)
    return where
