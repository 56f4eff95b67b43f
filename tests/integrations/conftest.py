"""A catalog for the runs of one test, and signals as a program finds them."""

import signal

import pytest

from model_checkpoint.database import EnhancedDatabaseConnection


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def catalog(url):
    with EnhancedDatabaseConnection(url) as connection:
        yield connection


@pytest.fixture(autouse=True)
def plain_signals():
    """Trackers of others, once imported, keep handlers of their own for the rest of a process."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
