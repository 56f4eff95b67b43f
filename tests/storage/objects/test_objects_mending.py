"""Repairs in an object store: a file takes the place it had, what was there is kept, and nothing else changes."""

import pytest
from tests.storage.objects.bucket_files import keys

from model_checkpoint.errors import CheckpointNotFound, StorageFailure, UnsafeName
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.objects.requests.bucket import Address, Bucket
from model_checkpoint.testing.blobs import blob_manifest, load_blobs, save_blobs, seal_blob

FILES = {"x-a1": b"one", "index.json": b"two"}


@pytest.fixture
def store(client):
    made = ObjectStore("s3://bucket/root", store=client, term=0.0)
    save_blobs(made, "step-1", FILES, attempt="a1")
    return made


def test_a_repaired_file_takes_its_place_and_the_old_one_is_kept(client, store):
    client.put("root/checkpoints/step-1/index.json~a1", b"spoiled")
    mending = store.mend("step-1", "m1")

    seal_blob(mending, "index.json", b"two")
    assert mending.finish(over=store.read_manifest("step-1"))

    assert load_blobs(store, "step-1") == FILES
    (kept,) = keys(client, ".trash")
    assert bytes(client.get(f"root/{kept}").bytes()) == b"spoiled"
    assert keys(client, ".staging") == []
    for act in (lambda: mending.create("z", 1), lambda: mending.finish(over=b"")):
        with pytest.raises(StorageFailure, match="is over"):
            act()
    mending.abort()


def test_a_lost_file_comes_back_under_the_name_it_had(client, store):
    client.delete("root/checkpoints/step-1/index.json~a1")
    client.delete("root/checkpoints/step-1/x-a1")
    mending = store.mend("step-1", "m1")
    seal_blob(mending, "index.json", b"two")
    seal_blob(mending, "x-a1", b"one")

    assert mending.finish(over=store.read_manifest("step-1"))

    assert keys(client, "checkpoints") == [
        "checkpoints/step-1/index.json~a1", "checkpoints/step-1/manifest.json", "checkpoints/step-1/x-a1",
    ]  # fmt: skip
    assert keys(client, ".trash") == []


def test_a_repair_copies_only_the_file_that_is_meant(store):
    save_blobs(store, "step-2", {"x-a2": b"one"}, attempt="a2")
    stamp, mending = store.stamps("step-2")["x-a2"], store.mend("step-1", "m1")

    assert not mending.link("x-a1", source="step-2", source_file="x-a2", identity="another")
    assert not mending.link("x-a1", source="step-2", source_file="none", identity=stamp.identity)
    assert mending.link("x-a1", source="step-2", source_file="x-a2", identity=stamp.identity)
    with pytest.raises(UnsafeName, match="X-a1"):
        mending.create("X-a1", 3)
    assert mending.finish(over=store.read_manifest("step-1"))
    assert load_blobs(store, "step-1") == FILES


def test_files_of_a_repair_that_nobody_needs_any_more_are_removed(client, store):
    mending = store.mend("step-1", "m1")
    seal_blob(mending, "new-m1", b"parity")
    seal_blob(mending, "x-a1", b"one")

    assert not mending.finish(over=b"another version")

    assert "checkpoints/step-1/new-m1" not in keys(client)
    assert load_blobs(store, "step-1") == FILES


def test_a_repair_with_an_open_file_is_not_finished(client, store):
    mending = store.mend("step-1", "m1")
    mending.create("new-m1", 3)

    with pytest.raises(StorageFailure, match="new-m1"):
        mending.finish(over=store.read_manifest("step-1"), manifest=blob_manifest("step-1", "m1", FILES))
    mending.abort()
    mending.abort()

    assert keys(client, ".staging") == []
    assert load_blobs(store, "step-1") == FILES


@pytest.mark.parametrize("deleted", [False, True], ids=["replaced", "deleted"])
def test_a_file_that_no_version_needs_goes_when_the_repair_comes_too_late(client, store, deleted):
    mending = store.mend("step-1", "m1")
    seal_blob(mending, "more-m1", b"for a version that is gone")
    if deleted:
        store.discard("step-1")

    assert not mending.finish(over=b"the manifest before")

    assert [key for key in keys(client) if "more-m1" in key] == []


def test_stamps_of_many_are_those_of_each_while_somebody_stages_files_beside_them(store):
    save_blobs(store, "step-2", {"x-b1": b"two"}, attempt="b1")
    stage = store.stage("step-1", "a2")
    seal_blob(stage, "x-a2", b"later")

    found = dict(store.stamp_all(["step-1", "step-2", "step-3"]))

    assert "x-a2" not in found["step-1"]
    assert {name: found[name] for name in ("step-1", "step-2")} == {
        name: store.stamps(name) for name in ("step-1", "step-2")
    }
    assert isinstance(found["step-3"], CheckpointNotFound)
    stage.abort()


def test_every_request_of_a_bucket_passes_through_what_it_was_wrapped_in(client):
    asked = []

    def wrap(through):
        def noted(request, call):
            asked.append(request.key)
            return through(request, call)

        return noted

    bucket = Bucket(Address.parse("s3://bucket/root"), client)
    seen = bucket.with_requests(wrap).with_requests(wrap)
    seen.put("a", b"1")

    assert bytes(bucket.get("a").data) == b"1"
    assert asked == ["a", "a"]
