"""One conditional put decides: what is made of lost answers, late arrivals and manifests that came by other ways."""

from datetime import timedelta

import pytest
from tests.ground.fault_proxy import FaultProxy, Spoil

from model_checkpoint.errors import DurabilityUnknown, StepExists, StorageFailure
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.objects.commit import ManifestPut, commit, find, look
from model_checkpoint.storage.objects.requests.bucket import Address, Bucket
from model_checkpoint.testing.blobs import blob_manifest, load_blobs, save_blobs

pytestmark = pytest.mark.s3

KEY = "checkpoints/step-1/manifest.json"
DRAFT = ManifestPut(data=b"the manifest", attempt="a1", home="a1")


@pytest.fixture
def store(moto, root):
    return ObjectStore(root, store=moto.client("bucket"))


@pytest.fixture
def proxy(moto):
    with FaultProxy(moto.endpoint) as proxy:
        yield proxy


@pytest.fixture
def spoiled(moto, root, proxy):
    """The same bucket by a client that never tries twice."""
    once = {"max_retries": 0, "retry_timeout": timedelta(seconds=20)}
    return Bucket(Address.parse(root), moto.client("bucket", endpoint=proxy.endpoint, retry_config=once))


def is_manifest_put(line):
    return line.startswith("PUT ") and "manifest.json" in line


# --- whose manifest it is --------------------------------------------------------------------------------------------


def test_a_manifest_that_came_without_remarks_says_itself_whose_it_is(store, bucket):
    save_blobs(store, "step-1", {"x": b"abc"}, attempt="a1")
    bucket.put(KEY, bucket.get(KEY).data)

    place = look(bucket, "step-1")

    assert (place.attempt, place.home) == ("a1", "a1")
    assert load_blobs(store, "step-1") == {"x": b"abc"}
    assert store.files("step-1").keys() == {"x", "manifest.json"}


def test_a_manifest_nobody_can_read_and_without_remarks_is_nobodys(bucket):
    bucket.put(KEY, b"no manifest of ours")

    place = look(bucket, "step-1")

    assert (place.attempt, place.home) == ("", "")
    assert place.published


def test_a_replacement_keeps_the_files_of_the_version_it_stands_on(store, bucket):
    save_blobs(store, "step-1", {"x": b"old", "kept": b"kept"}, attempt="a1")
    save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2", replace=True, obsolete=["x"])

    place = look(bucket, "step-1")

    assert (place.attempt, place.home) == ("a2", "a1")
    assert store.files("step-1").keys() == {"kept", "x-a2", "manifest.json"}
    assert store.open("step-1", "kept").size == 4


def test_the_same_manifest_by_another_attempt_is_not_taken_for_the_own(store):
    store.stage("step-1", "a1").publish(b"the same")

    with pytest.raises(StepExists, match=r"a checkpoint of that name exists"):
        store.stage("step-1", "a2").publish(b"the same")


def test_another_manifest_of_the_same_attempt_is_not_taken_for_the_own(bucket):
    commit(bucket, "step-1", DRAFT)

    with pytest.raises(StepExists, match=r"a checkpoint of that name exists"):
        commit(bucket, "step-1", ManifestPut(data=b"another", attempt="a1", home="a1"))

    assert find(bucket, "step-1").data == b"the manifest"


def test_a_deletion_of_the_same_attempt_is_not_taken_for_the_own(bucket):
    commit(bucket, "step-1", ManifestPut(data=b"", attempt="a1", home="a1"))

    commit(bucket, "step-1", DRAFT)

    assert find(bucket, "step-1").data == b"the manifest"


# --- lost answers ----------------------------------------------------------------------------------------------------


def test_a_commit_whose_answer_was_lost_is_found_in_place(proxy, spoiled, bucket):
    proxy.script([Spoil.LOST_REPLY], is_manifest_put)

    commit(spoiled, "step-1", DRAFT)

    assert find(bucket, "step-1").data == b"the manifest"


def test_a_commit_is_tried_three_times_and_no_more(proxy, spoiled, bucket):
    proxy.script([Spoil.RESET, Spoil.RESET], is_manifest_put)
    commit(spoiled, "step-1", DRAFT)
    assert find(bucket, "step-1").data == b"the manifest"

    proxy.script([Spoil.RESET] * 3, is_manifest_put)
    with pytest.raises(StorageFailure, match=r"could not be written") as caught:
        commit(spoiled, "step-2", DRAFT)

    assert not isinstance(caught.value, DurabilityUnknown)
    assert find(bucket, "step-2") is None
    assert sum(map(is_manifest_put, proxy.seen)) == 4


def test_a_commit_given_up_cannot_arrive_late(proxy, spoiled, bucket):
    proxy.script([Spoil.RESET] * 3, is_manifest_put)
    with pytest.raises(StorageFailure, match=r"could not be written"):
        commit(spoiled, "step-1", DRAFT)

    with pytest.raises(StorageFailure, match=r"changed by somebody else"):
        bucket.put_if(KEY, DRAFT.data, None, remarks=DRAFT.remarks)

    commit(bucket, "step-1", ManifestPut(data=b"the next", attempt="a2", home="a2"))
    assert find(bucket, "step-1").data == b"the next"


def test_a_commit_given_up_is_a_clean_failure_though_the_answer_to_its_fence_was_lost(proxy, spoiled, bucket):
    proxy.script([Spoil.RESET] * 3 + [Spoil.LOST_REPLY], is_manifest_put)

    with pytest.raises(StorageFailure, match=r"could not be written") as caught:
        commit(spoiled, "step-1", DRAFT)

    assert not isinstance(caught.value, DurabilityUnknown)
    assert look(bucket, "step-1").attempt == "not-a1"


def test_a_commit_that_arrived_before_its_fence_is_a_commit(proxy, spoiled, bucket):
    def arrive():
        bucket.put_if(KEY, DRAFT.data, None, remarks=DRAFT.remarks)

    proxy.script([Spoil.RESET] * 3 + [arrive], is_manifest_put)

    commit(spoiled, "step-1", DRAFT)

    assert find(bucket, "step-1").data == b"the manifest"


def test_a_commit_whose_fence_did_not_arrive_is_unknown(proxy, spoiled, bucket):
    proxy.script([Spoil.RESET] * 4, is_manifest_put)

    with pytest.raises(DurabilityUnknown, match=r"whether it arrived could not be found out"):
        commit(spoiled, "step-1", DRAFT)

    assert look(bucket, "step-1") is None


def test_a_commit_that_another_one_overtook_at_its_fence_is_unknown(proxy, spoiled, bucket):
    other = ManifestPut(data=b"another", attempt="a2", home="a2")
    proxy.script([Spoil.RESET] * 3 + [lambda: commit(bucket, "step-1", other)], is_manifest_put)

    with pytest.raises(DurabilityUnknown, match=r"whether it arrived could not be found out"):
        commit(spoiled, "step-1", DRAFT)

    assert find(bucket, "step-1").data == b"another"


def test_a_replacement_that_may_still_arrive_is_unknown(proxy, spoiled, bucket):
    commit(bucket, "step-1", DRAFT)
    proxy.script([Spoil.RESET] * 3, is_manifest_put)

    with pytest.raises(DurabilityUnknown, match=r"whether it arrived could not be found out"):
        commit(spoiled, "step-1", ManifestPut(data=b"new", attempt="a2", home="a1"), over=look(bucket, "step-1"))

    assert find(bucket, "step-1").data == b"the manifest"


def test_a_commit_whose_outcome_cannot_be_read_is_unknown(proxy, spoiled):
    proxy.script([Spoil.LOST_REPLY, Spoil.RESET], lambda line: "manifest.json" in line)

    with pytest.raises(DurabilityUnknown, match=r"whether it arrived could not be found out"):
        commit(spoiled, "step-1", DRAFT)


def test_a_commit_that_was_refused_and_cannot_be_read_is_a_clean_failure(proxy, spoiled, bucket):
    commit(bucket, "step-1", ManifestPut(data=b"another", attempt="a2", home="a2"))
    proxy.script([None, Spoil.RESET], lambda line: "manifest.json" in line)

    with pytest.raises(StorageFailure, match=r"could not be read") as caught:
        commit(spoiled, "step-1", DRAFT)

    assert not isinstance(caught.value, DurabilityUnknown)


def test_a_manifest_lists_its_files_and_a_broken_one_none(store, bucket):
    save_blobs(store, "step-1", {"x-1": b"abc"}, attempt="1")
    bucket.put("checkpoints/step-2/manifest.json", blob_manifest("step-2", "1", {"x": b""})[:-1])

    assert find(bucket, "step-1").listed() == {"x-1"}
    assert find(bucket, "step-2").listed() is None
