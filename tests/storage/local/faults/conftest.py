"""A store whose calls to the system fail as a test says."""

import pytest
from tests.storage.local.faults.failing_calls import FailingCalls

from model_checkpoint.storage.local.store import LocalStore


@pytest.fixture
def calls():
    return FailingCalls()


@pytest.fixture
def store(tmp_path, calls):
    return LocalStore(tmp_path, calls=calls)
