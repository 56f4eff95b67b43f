"""A root on the quick server as a store and as a bucket, and a machine whose clock somebody sets."""

import time

import pytest
from obstore.store import MemoryStore

from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.objects.requests.bucket import Address, Bucket

DAY = 24 * 3600 * 10**9


@pytest.fixture
def store(moto, root):
    return ObjectStore(root, store=moto.client("bucket"), term=0.0)


@pytest.fixture
def client():
    return MemoryStore()


@pytest.fixture
def bucket(moto, root):
    return Bucket(Address.parse(root), moto.client("bucket"))


@pytest.fixture
def clock(monkeypatch):
    """A function that sets this machine's clock so many days ahead."""
    true = {name: getattr(time, name) for name in ("time", "time_ns")}

    def shift(days):
        monkeypatch.setattr("time.time", lambda: true["time"]() + days * DAY / 1e9)
        monkeypatch.setattr("time.time_ns", lambda: true["time_ns"]() + days * DAY)

    return shift
