"""On an object store, too, the newest checkpoint is the one that was saved last, whatever a machine's clock said."""

import time
import uuid

import msgspec
import pytest

import model_checkpoint as mc
from model_checkpoint.manifest import decode, encode
from model_checkpoint.storage import ObjectStore, open_store

pytestmark = pytest.mark.s3


@pytest.fixture
def store(moto, root):
    return ObjectStore(root, store=moto.client("bucket"))


def test_of_two_saves_without_a_step_the_second_is_newest_though_the_clock_was_set_back(store, monkeypatch):
    mc.save(store, {"n": 1})
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)

    mc.save(store, {"n": 2})

    assert mc.load(store) == {"n": 2}


def test_what_a_machine_with_its_clock_ahead_left_is_older_than_what_is_saved_after_it(store):
    mc.save("memory://objects-time", {"n": 1}, name="any", overwrite=True)
    manifest = decode(open_store("memory://objects-time").read_manifest("any"), "here")
    future = msgspec.structs.replace(manifest, name="theirs", created="2099-01-01T00:00:00.000000+00:00")
    store.stage("theirs", uuid.uuid4().hex).publish(encode(future))

    mc.save(store, {"n": 2})

    assert mc.load(store) == {"n": 2}
