"""A storage in a dictionary, and the store that keeps checkpoints in it."""

import pytest
from tests.distributed.api.own_parts import OwnStorage

from model_checkpoint.distributed.storing.keyed_store import KeyedStore


@pytest.fixture
def storage():
    return OwnStorage()


@pytest.fixture
def store(storage):
    return KeyedStore(storage)
