"""On an object store, too, no machine's clock is believed: not for which is newest, not for who is still at work."""

import time
import uuid

import msgspec
import pytest

import model_checkpoint as mc
from model_checkpoint.manifest import decode, encode
from model_checkpoint.options import Graces
from model_checkpoint.storage import open_store
from model_checkpoint.storage.objects.leases import LeaseRecord
from model_checkpoint.storage.objects.requests.keys import lease_key
from model_checkpoint.testing.blobs import AT_ONCE

pytestmark = pytest.mark.s3


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


# --- leases ----------------------------------------------------------------------------------------------------------

HOURS = Graces(local=3600.0, foreign=3600.0, trash=3600.0)


def leave_work(bucket, *, host):
    """The lease and a file of an attempt whose owner is on ``host``, and not heard of any more."""
    claim = LeaseRecord(attempt="a1", name="step-1", host=host, boot="b", pid=1, born="1", nonce="n")
    bucket.put(lease_key("a1"), msgspec.json.encode(claim))
    bucket.put("checkpoints/step-1/x~a1", b"half")


@pytest.mark.parametrize("days", [30, -30])
def test_a_machine_whose_clock_is_wrong_buries_no_attempt_that_was_alive_a_moment_ago(store, bucket, clock, days):
    leave_work(bucket, host="elsewhere")
    clock(days)

    swept = store.sweep(HOURS)

    assert (list(swept.attempts), list(swept.alive)) == ([], ["a1"])
    assert 0 < swept.waiting[0].seconds <= 3600
    assert len(bucket.list("checkpoints")) == 1


@pytest.mark.parametrize("days", [30, -30])
def test_an_attempt_of_a_machine_whose_clock_is_wrong_goes_in_its_time(store, bucket, clock, days):
    clock(days)
    leave_work(bucket, host="elsewhere")
    clock(0)

    assert list(store.sweep(HOURS).attempts) == []
    assert list(store.sweep(AT_ONCE).attempts) == ["a1"]
    assert bucket.list() == []


@pytest.mark.parametrize("days", [30, -30])
def test_work_of_this_process_stays_its_own_though_the_clock_is_set_meanwhile(store, clock, days):
    attempt = store.stage("step-1", uuid.uuid4().hex)
    clock(days)

    swept = store.sweep(AT_ONCE)

    assert (list(swept.attempts), len(swept.alive)) == ([], 1)
    attempt.abort()
