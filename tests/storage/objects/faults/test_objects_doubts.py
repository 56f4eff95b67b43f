"""Answers that are lost, conditions that are ignored, owners that are dead: what a bucket shows and says then."""

import dataclasses
import os

import msgspec
import pytest
from tests.storage.objects.bucket_files import keys

from model_checkpoint.errors import CheckpointException, DurabilityUnknown, StepExists, StorageFailure
from model_checkpoint.options import Graces
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.objects import leases
from model_checkpoint.storage.objects.commit import ManifestPut, commit, decide, find, look
from model_checkpoint.storage.objects.folder import steady_state
from model_checkpoint.storage.objects.leases import Lease, LeaseRecord, prove, read_claim, seconds_left, store_time
from model_checkpoint.storage.objects.requests.bucket import Address, Bucket
from model_checkpoint.storage.objects.requests.failures import ConditionFailed
from model_checkpoint.testing.blobs import AT_ONCE, blob_manifest

ADDRESS = Address.parse("s3://bucket/root")
DRAFT = ManifestPut(data=blob_manifest("step-1", "a1", {}), attempt="a1", home="a1")
OTHER = ManifestPut(data=blob_manifest("step-1", "a2", {}), attempt="a2", home="a2")
GRACES = Graces(local=60.0, foreign=100.0, trash=0.0)


class Doubtful(Bucket):
    """Some of its conditional puts are answered by a failure, whether they were made or not."""

    lost = 0  # how many answers
    made = True
    only = b""  # of objects that begin so

    def put_if(self, key, data, condition, *, remarks=None):
        if self.lost and data.startswith(self.only):
            self.lost -= 1
            if self.made:
                super().put_if(key, data, condition, remarks=remarks)
            raise StorageFailure(f"{key}: the line is dead (503).", key)
        super().put_if(key, data, condition, remarks=remarks)


class Careless(Bucket):
    """Writes whatever it is given, whatever the condition."""

    def put_if(self, key, data, condition, *, remarks=None):
        if condition is None or self.heedless:
            self.put(key, data, remarks=remarks)
        else:
            super().put_if(key, data, condition, remarks=remarks)

    heedless = True


@pytest.fixture
def bucket(client):
    return Doubtful(ADDRESS, client)


# --- commits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [True, False])
def test_a_commit_whose_answer_was_lost_is_in_place(bucket, made):
    bucket.lost, bucket.made = 1, made

    commit(bucket, "step-1", DRAFT)

    assert find(bucket, "step-1").attempt == "a1"
    assert find(bucket, "step-1").data == DRAFT.data


def test_a_commit_that_never_arrives_can_never_arrive_later(bucket):
    bucket.lost, bucket.made, bucket.only = 99, False, b"{"

    with pytest.raises(StorageFailure, match=r"the line is dead") as caught:
        commit(bucket, "step-1", DRAFT)

    assert not isinstance(caught.value, DurabilityUnknown)
    assert find(bucket, "step-1") is None
    assert (look(bucket, "step-1").data, look(bucket, "step-1").attempt) == (b"", "not-a1")
    bucket.lost = 0
    commit(bucket, "step-1", DRAFT)
    assert find(bucket, "step-1").attempt == "a1"


def test_where_nothing_can_be_written_any_more_nobody_knows(bucket):
    bucket.lost, bucket.made = 99, False

    with pytest.raises(DurabilityUnknown, match="step-1"):
        commit(bucket, "step-1", DRAFT)


def test_a_replacement_that_never_arrives_is_in_doubt(bucket):
    commit(bucket, "step-1", DRAFT)
    bucket.lost, bucket.made = 99, False

    with pytest.raises(DurabilityUnknown, match="step-1"):
        commit(bucket, "step-1", OTHER, over=find(bucket, "step-1"))

    assert find(bucket, "step-1").attempt == "a1"


def test_a_name_is_taken_once_and_only_what_is_there_is_replaced(bucket):
    commit(bucket, "step-1", DRAFT)
    first = find(bucket, "step-1")

    with pytest.raises(StepExists, match="step-1"):
        commit(bucket, "step-1", OTHER)
    commit(bucket, "step-1", OTHER, over=first)
    with pytest.raises(ConditionFailed, match="changed by somebody else"):
        commit(bucket, "step-1", DRAFT, over=first)
    assert find(bucket, "step-1").attempt == "a2"
    commit(bucket, "step-1", ManifestPut(data=b"", attempt="t", home="a2"), over=find(bucket, "step-1"))
    assert find(bucket, "step-1") is None
    commit(bucket, "step-1", DRAFT)  # over the mark of a deletion
    assert find(bucket, "step-1").attempt == "a1"


def test_a_manifest_that_was_copied_there_tells_its_attempt_itself(bucket, client):
    client.put("root/checkpoints/step-1/manifest.json", DRAFT.data)
    client.put("root/checkpoints/step-2/manifest.json", b"nothing")

    assert (find(bucket, "step-1").attempt, find(bucket, "step-1").home) == ("a1", "a1")
    assert find(bucket, "step-1").listed() == frozenset()
    assert (find(bucket, "step-2").attempt, find(bucket, "step-2").listed()) == ("", None)
    assert len(find(bucket, "step-2").identity) == 64


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [True, False])
def test_a_verdict_whose_answer_was_lost_is_asked_for(bucket, made):
    bucket.lost, bucket.made = 1, made

    assert decide(bucket, "a1", b"yes") == b"yes"
    assert decide(bucket, "a1", b"no") == b"yes"


def test_without_any_verdict_nothing_is_decided(bucket):
    bucket.lost, bucket.made = 99, False

    with pytest.raises(StorageFailure, match=r"a1\.verdict: no verdict could be put there"):
        decide(bucket, "a1", b"yes")


# --- conditions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heedless", [True, False])
def test_a_store_that_ignores_conditions_is_refused_and_nothing_stays(client, heedless):
    bucket = Careless(ADDRESS, client)
    bucket.heedless = heedless

    with pytest.raises(CheckpointException, match=r"wrote over an object that was to be written if there is none"):
        prove(bucket)
    with pytest.raises(CheckpointException, match=r"wrote over an object that was to be written if there is none"):
        Lease(bucket, attempt="a1", name="step-1")

    assert keys(client) == []
    assert not bucket.proven


def test_a_store_that_does_not_know_conditions_is_refused_by_what_it_lacks(client):
    class Unknowing(Bucket):
        def put_if(self, key, data, condition, *, remarks=None):
            raise StorageFailure(f"{key}: answered 501 NotImplemented.", key)

    with pytest.raises(CheckpointException, match=r"does not know how to write an object if there is none"):
        prove(Unknowing(ADDRESS, client))
    assert keys(client) == []


def test_a_failure_is_not_taken_for_a_refusal(client):
    bucket = Doubtful(ADDRESS, client)
    bucket.lost, bucket.made = 99, False

    with pytest.raises(StorageFailure, match="the line is dead"):
        prove(bucket)
    assert keys(client) == []
    bucket.lost = 0
    prove(bucket)
    assert bucket.proven
    assert keys(client) == []


# --- leases ----------------------------------------------------------------------------------------------------------


def claim_of(lease):
    return read_claim(lease._bucket, lease.key)


def test_a_lease_is_there_until_it_is_released(bucket, client):
    lease = Lease(bucket, attempt="a1", name="step-1")
    claim = claim_of(lease)

    assert (claim.attempt, claim.name, claim.pid) == ("a1", "step-1", os.getpid())
    assert seconds_left(claim, 1e9, GRACES, term=0.0) is None
    client.delete("root/.staging/a1.lease")
    lease.beat()
    assert claim_of(lease) == claim
    lease.leave()
    assert claim_of(lease) == claim
    assert seconds_left(claim, 10.0, GRACES, term=1000.0) == 50.0
    lease.release()
    assert keys(client) == []
    lease.beat()
    assert keys(client) == []


def test_an_owner_counts_as_dead_by_where_it_lived(bucket):
    lease = Lease(bucket, attempt="a1", name="step-1")
    mine = claim_of(lease)
    change = msgspec.structs.replace
    parent = change(mine, pid=os.getppid(), born=leases._born(os.getppid()))

    left = {
        "another machine": change(mine, host="elsewhere"), "another boot": change(mine, boot="b"),
        "another container": change(mine, space="s"), "no birth": change(mine, born=""),
        "another life of this id": change(mine, born="1"), "another claim": change(mine, nonce="n"),
        "a process that lives": parent, "its id in another life": change(parent, born="1"),
        "no such process": change(mine, pid=2**22 + 1),
    }  # fmt: skip

    told = {what: seconds_left(claim, 10.0, GRACES, term=300.0) for what, claim in left.items()}

    assert told == {
        "another machine": 290.0, "another boot": 290.0, "another container": 290.0, "no birth": 290.0,
        "another life of this id": 50.0, "another claim": 50.0, "a process that lives": None,
        "its id in another life": 50.0, "no such process": 50.0,
    }  # fmt: skip
    assert seconds_left(left["another machine"], 10.0, GRACES, term=0.0) == 90.0
    lease.release()


def test_what_is_no_lease_is_left_alone(bucket, client):
    client.put("root/.staging/a9.lease", b"not of ours")
    client.put("root/.staging/a9.other", b"")
    store = ObjectStore(ADDRESS.url, store=client, term=0.0)

    swept = store.sweep(AT_ONCE)

    assert (swept.attempts, swept.alive) == ([], ["a9"])
    assert read_claim(bucket, ".staging/a9.lease") is None
    assert read_claim(bucket, ".staging/a8.lease") is None
    assert keys(client) == [".staging/a9.lease", ".staging/a9.other"]


def test_a_lease_that_tells_of_another_attempt_is_not_believed(client):
    claim = LeaseRecord(attempt="a1", name="step-1", host="elsewhere")
    client.put("root/.staging/a2.lease", msgspec.json.encode(claim))
    store = ObjectStore(ADDRESS.url, store=client, term=0.0)

    assert store.sweep(AT_ONCE).alive == ["a2"]


def test_what_a_dead_attempt_left_goes_and_what_is_needed_stays(client):
    claim = LeaseRecord(attempt="a2", name="step-1", host="elsewhere")
    store = ObjectStore(ADDRESS.url, store=client, term=0.0)
    for key, data in {".staging/a2.lease": msgspec.json.encode(claim), "checkpoints/step-1/x-a2": b"12345",
                      "checkpoints/step-1/mine.txt": b"of a person", ".staging/a2.verdict": b"",
                      ".staging/z.clock": b"",
                      "checkpoints/step-1/manifest.json": DRAFT.data}.items():  # fmt: skip
        client.put(f"root/{key}", data)

    assert store.sweep(AT_ONCE, dry_run=True).nbytes == 5
    swept = store.sweep(AT_ONCE)

    assert (swept.attempts, swept.nbytes) == (["a2"], 5)
    assert keys(client) == ["checkpoints/step-1/manifest.json", "checkpoints/step-1/mine.txt"]


def test_the_clock_of_the_store_leaves_no_trace(bucket, client):
    assert store_time(bucket).tzinfo is not None
    assert keys(client) == []


def test_a_bucket_is_seen_from_its_prefix(client):
    inner, outer = Bucket(ADDRESS, client), Bucket(dataclasses.replace(ADDRESS, prefix=""), client)

    assert inner.is_empty()
    inner.put("a/b", b"1")
    inner.put("a/c/d", b"22")
    inner.delete("never")

    assert [(item.key, item.size) for item in inner.list("a")] == [("a/b", 1), ("a/c/d", 2)]
    assert [item.key for item in outer.list()] == ["root/a/b", "root/a/c/d"]
    assert (inner.folders("a"), outer.folders("")) == (["c"], ["root"])
    assert bytes(inner.read("a/c/d", 1, 5)) == b"2"
    assert (inner.read_head("a/c/d", 1), inner.read_head("a/c/d", None)) == (b"2", b"22")
    assert not inner.is_empty()
    assert inner.where("a") == "s3://bucket/root/a"


# --- names that never stay the same ----------------------------------------------------------------------------------


class Restless(Bucket):
    """Whatever is read of a manifest has changed by the next look."""

    def get(self, key):
        found = super().get(key)
        if key.endswith("/manifest.json"):
            self.put(key, found.data + b" ", remarks=found.remarks)
        return found


def test_a_name_that_changes_all_the_time_is_told_and_not_taken_for_damaged(client):
    bucket = Restless(ADDRESS, client)
    commit(bucket, "step-1", DRAFT)

    with pytest.raises(StorageFailure, match=r"checkpoints/step-1: something keeps changing it"):
        steady_state(bucket, "step-1")
    assert steady_state(Bucket(ADDRESS, client), "step-1").place.attempt == "a1"
    assert steady_state(bucket, "step-2").place is None
