"""Reads and small values that fail at any call: a typed error, and no descriptor is lost."""

import errno
import os

import pytest

from model_checkpoint.errors import CheckpointException
from model_checkpoint.storage import LocalStore
from model_checkpoint.testing import Ended, Fault, Kind, each_call
from model_checkpoint.testing.blobs import save_blobs

FILES = {"x-a1": b"x" * 9000, "y-a1": b"y"}


def read_all(store):
    store.names()
    store.read_manifest("step-1")
    store.files("step-1")
    store.stamps("step-1")
    for file, data in FILES.items():
        reader = store.open("step-1", file)
        try:
            buffer = bytearray(len(data))
            reader.read_into(0, memoryview(buffer))
            assert bytes(buffer) == data
            assert bytes(reader.map() or data) == data
        finally:
            reader.close()
    store.read_trashed(store.trash()[0].token)
    store.free_bytes()


def keep_values(store):
    store.write_sidecar("tag.a", b"1")
    store.write_sidecar("tag.a", b"2")
    for _, found in store.read_sidecars("tag"):
        if isinstance(found, CheckpointException):
            raise found
        assert found == b"2"
    store.remove_sidecar("tag.a")


@pytest.fixture
def root(tmp_path):
    store = LocalStore(tmp_path / "root")
    save_blobs(store, "step-1", FILES, attempt="a1")
    save_blobs(store, "step-2", FILES, attempt="a1")
    store.discard("step-2")
    return tmp_path / "root"


@pytest.mark.fault
@pytest.mark.parametrize("direct", [False, True], ids=["cached", "direct"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EINVAL], ids=errno.errorcode.get)
@pytest.mark.parametrize("deed", [read_all, keep_values])
def test_failed_at_every_call_no_descriptor_is_lost(root, deed, code, direct):
    def work(calls):
        before = len(os.listdir("/proc/self/fd"))
        try:
            deed(LocalStore(root, calls=calls, direct=direct))
        finally:
            assert len(os.listdir("/proc/self/fd")) == before

    points = 0
    for at, outcome in each_call(work, Fault(kind=Kind.FAIL, at=0, code=code), prepare=lambda: None):
        points += 1
        assert outcome.ended in (Ended.RETURNED, Ended.RAISED), at
        assert outcome.error is None or isinstance(outcome.error, CheckpointException), (at, outcome.error)

    assert points >= 12
