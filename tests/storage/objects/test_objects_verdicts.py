"""How attempts and deletions end in an object store: by one object that decides, on obstore's own store in memory."""

import msgspec
import pytest
from tests.storage.objects.bucket_files import keys

from model_checkpoint.errors import (
    CheckpointNotFound,
    LimitExceeded,
    RootNotShared,
    StepExists,
    StorageFailure,
    Truncated,
)
from model_checkpoint.options import Graces
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.contract.names import TrashToken
from model_checkpoint.storage.contract.sidecars import SIDECAR_BYTES, seal
from model_checkpoint.storage.objects.folder import DeletedFiles
from model_checkpoint.storage.objects.joint_attempt import AttemptVerdict
from model_checkpoint.storage.objects.requests.keys import RECORD, deleted_key
from model_checkpoint.testing.blobs import AT_ONCE, blob_manifest, load_blobs, save_blobs, seal_blob

FILES = {"x-a1": b"one" * 50, "y-a1": b"two"}
LATER = Graces(local=0.0, foreign=0.0, trash=3600.0)


@pytest.fixture
def store(client):
    return ObjectStore("s3://bucket/root", store=client, term=0.0)


def shared(store, name="step-1", attempt="a1"):
    """An attempt to which two ranks have written; rank 0's, the other's, and the manifest of both."""
    leader, other = store.stage_shared(name, attempt), store.join(name, attempt)
    seal_blob(leader, f"r0-{attempt}", b"of rank 0")
    seal_blob(other, "index.json", b"of rank 1")
    return leader, other, blob_manifest(name, attempt, {f"r0-{attempt}": b"of rank 0", "index.json": b"of rank 1"})


# --- attempts of many ranks ------------------------------------------------------------------------------------------


def test_files_of_all_ranks_are_published_together_and_nothing_else_stays(client, store):
    leader, other, manifest = shared(store)

    assert sorted(leader.stamps()) == ["index.json", "r0-a1"]
    assert sorted(other.stamps()) == ["index.json"]
    leader.flush()
    leader.publish(manifest)

    assert load_blobs(store, "step-1") == {"r0-a1": b"of rank 0", "index.json": b"of rank 1"}
    assert store.settle("step-1", "a1")
    assert keys(client, ".staging") == []


def test_an_attempt_that_was_given_up_is_never_published(client, store):
    leader, _, manifest = shared(store)

    assert not store.settle("step-1", "a1")
    assert not store.settle("step-1", "a1")
    with pytest.raises(StorageFailure, match=r"other ranks have given this attempt up\. Begin a new one"):
        leader.publish(manifest)
    leader.abort()
    leader.abort()

    assert store.names() == []
    assert keys(client, "checkpoints") == []
    assert keys(client, ".staging") == [".staging/a1.lease", ".staging/a1.verdict"]
    assert store.sweep(AT_ONCE).attempts == ["a1"]
    assert keys(client, ".staging") == []


def decided(client, manifest, *, replace):
    word = AttemptVerdict(manifest=manifest, replace=replace)
    client.put("root/.staging/a2.verdict", msgspec.msgpack.encode(word))


@pytest.mark.parametrize("replace", [False, True])
def test_what_rank_0_had_decided_before_it_died_is_carried_out(client, store, replace):
    if replace:
        save_blobs(store, "step-1", FILES, attempt="a1")
    _, _, manifest = shared(store, attempt="a2")
    decided(client, manifest, replace=replace)

    assert store.settle("step-1", "a2")

    assert store.read_manifest("step-1") == manifest
    assert store.settle("step-1", "a2")


def test_a_name_that_somebody_else_has_by_now_is_left_to_them(client, store):
    save_blobs(store, "step-1", FILES, attempt="a1")
    before = store.read_manifest("step-1")
    _, _, manifest = shared(store, attempt="a2")
    decided(client, manifest, replace=False)

    assert not store.settle("step-1", "a2")

    assert store.read_manifest("step-1") == before


@pytest.mark.parametrize("name", ["step-1", "step-2"])
def test_a_rank_that_does_not_see_what_rank_0_began_says_so(store, name):
    if name == "step-2":
        store.stage_shared("step-1", "a1")

    with pytest.raises(RootNotShared, match="rank 0 has begun to save this, but nothing of that is to be seen from"):
        store.join(name, "a1")


def test_only_rank_0_publishes_and_clears_up(client, store):
    leader, other, manifest = shared(store)

    with pytest.raises(StorageFailure, match="is over"):
        other.publish(manifest)
    other.abort()
    other.abort()
    with pytest.raises(StorageFailure, match="is over"):
        other.open("index.json")
    with pytest.raises(StorageFailure, match="is over"):
        other.drop(["index.json"])

    assert sorted(leader.stamps()) == ["index.json", "r0-a1"]
    leader.abort()
    assert keys(client, "checkpoints") == []


def test_files_that_are_dropped_are_gone_and_others_are_read(client, store):
    leader, _, _ = shared(store)
    reader, room = leader.open("index.json"), bytearray(9)
    reader.read_into(0, memoryview(room))

    leader.drop(["index.json"])

    assert bytes(room) == b"of rank 1"
    assert keys(client, "checkpoints") == ["checkpoints/step-1/r0-a1"]
    with pytest.raises(Truncated, match=r"the file index.json is gone"):
        leader.open("index.json")
    with pytest.raises(Truncated, match=r"the file index.json is gone"):
        reader.read_into(0, memoryview(room))
    leader.publish(blob_manifest("step-1", "a1", {"r0-a1": b"of rank 0"}))
    assert set(store.files("step-1")) == {"manifest.json", "r0-a1"}


def test_an_attempt_id_is_used_once(store):
    store.stage("step-1", "a1")

    with pytest.raises(StorageFailure, match=r"the attempt id is in use. Use a fresh one for each attempt"):
        store.stage("step-2", "a1")


def test_a_manifest_of_no_bytes_and_files_that_are_open_are_not_published(store):
    stage = store.stage("step-1", "a1")

    with pytest.raises(StorageFailure, match=r"a manifest of no bytes means a deleted checkpoint"):
        stage.publish(b"")
    stage.create("x-a1", 3)
    with pytest.raises(StorageFailure, match=r"x-a1"):
        stage.publish(blob_manifest("step-1", "a1", {}))
    stage.abort()
    assert store.names() == []


def test_a_file_is_copied_only_if_it_is_still_the_one_that_is_meant(store):
    save_blobs(store, "step-1", FILES, attempt="a1")
    stamp, stage = store.stamps("step-1")["x-a1"], store.stage("step-2", "a2")

    assert not stage.link("x-a2", source="step-1", source_file="x-a1", identity="another")
    assert not stage.link("x-a2", source="step-1", source_file="z-a1", identity=stamp.identity)
    assert stage.link("x-a2", source="step-1", source_file="x-a1", identity=stamp.identity)
    assert list(stage.stamps()) == ["x-a2"]
    stage.publish(blob_manifest("step-2", "a2", {"x-a2": FILES["x-a1"]}))
    assert load_blobs(store, "step-2") == {"x-a2": FILES["x-a1"]}


# --- deletions -------------------------------------------------------------------------------------------------------


def record_of(client, token):
    key = f"root/{deleted_key(TrashToken.parse(token), RECORD)}"
    return key, DeletedFiles.decode(bytes(client.get(key).bytes()))


def test_a_deletion_counts_the_bytes_of_its_files_and_its_manifest(client, store):
    save_blobs(store, "step-1", FILES, attempt="a1")
    size = len(store.read_manifest("step-1"))

    gone = store.discard("step-1")

    assert gone.nbytes == size + 153
    assert [one.nbytes for one in store.trash()] == [size + 153]
    client.delete(record_of(client, gone.token)[0])  # as if it had died before it was written
    assert [one.nbytes for one in store.trash()] == [size]
    assert store.sweep(AT_ONCE).trashed == [gone.token]
    assert store.trash() == []


def test_files_of_other_attempts_are_no_part_of_a_checkpoint(client, store):
    save_blobs(store, "step-1", {"index.json": b"mine"}, attempt="a1")
    client.put("root/checkpoints/step-1/index.json~zz", b"of another attempt")

    assert set(store.files("step-1")) == {"manifest.json", "index.json"}
    gone = store.discard("step-1")

    assert record_of(client, gone.token)[1].files == {"index.json~a1": 4}
    store.bring_back(gone.token)
    assert load_blobs(store, "step-1") == {"index.json": b"mine"}


def test_files_of_deleted_versions_and_of_attempts_at_work_are_no_part_of_a_checkpoint(client, store):
    save_blobs(store, "step-1", FILES, attempt="a1")
    store.discard("step-1")
    save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2")
    stage = store.stage("step-1", "a3")
    seal_blob(stage, "x-a3", b"not yet")

    gone = store.discard("step-1")

    assert record_of(client, gone.token)[1].files == {"x-a2": 3}
    stage.abort()
    assert len(store.trash()) == 2


def test_what_is_being_removed_does_not_come_back(client, store):
    save_blobs(store, "step-1", FILES, attempt="a1")
    gone = store.discard("step-1")
    key, record = record_of(client, gone.token)
    client.put(key, msgspec.structs.replace(record, purged=True).encode())

    assert store.trash() == []
    with pytest.raises(CheckpointNotFound, match=gone.token):
        store.bring_back(gone.token)
    assert store.sweep(AT_ONCE).trashed == [gone.token]
    assert keys(client, "checkpoints/step-1/x") == []


def test_what_has_lost_a_file_does_not_come_back(client, store):
    save_blobs(store, "step-1", FILES, attempt="a1")
    gone = store.discard("step-1")
    client.delete("root/checkpoints/step-1/y-a1")

    assert store.trash() == []
    with pytest.raises(CheckpointNotFound, match=gone.token):
        store.bring_back(gone.token)


def test_a_damaged_record_keeps_the_files_and_lets_the_version_come_back(client, store):
    save_blobs(store, "step-1", FILES, attempt="a1")
    gone = store.discard("step-1")
    client.put(record_of(client, gone.token)[0], seal(b"{}")[:-1])

    assert [one.token for one in store.trash()] == [gone.token]
    store.bring_back(gone.token)
    assert load_blobs(store, "step-1") == FILES


def test_a_version_that_is_in_place_again_is_no_deletion(client, store):
    """As if whoever brought it back had died before it could forget the deletion."""
    save_blobs(store, "step-1", FILES, attempt="a1")
    gone = store.discard("step-1")
    set_aside = {key: bytes(client.get(f"root/{key}").bytes()) for key in keys(client, "checkpoints") if "~" in key}
    store.bring_back(gone.token)
    for key, data in set_aside.items():
        client.put(f"root/{key}", data)

    assert store.trash() == []
    with pytest.raises(StepExists, match="step-1"):
        store.bring_back(gone.token)
    swept = store.sweep(AT_ONCE)
    assert (swept.trashed, swept.nbytes) == ([], 0)
    assert load_blobs(store, "step-1") == FILES
    assert not any("~" in key for key in keys(client, "checkpoints"))


def test_purging_removes_exactly_the_files_of_the_version_and_counts_them(client, store):
    save_blobs(store, "step-1", FILES, attempt="a1")
    size = len(store.read_manifest("step-1"))
    save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2", replace=True, obsolete=list(FILES))
    told = []

    waiting = store.sweep(LATER)
    assert (waiting.trashed, len(waiting.waiting)) == ([], 1)
    assert 3590 < waiting.waiting[0].seconds <= 3600
    ahead = store.sweep(AT_ONCE, dry_run=True)
    swept = store.sweep(AT_ONCE, tell=told.append)

    assert ahead.trashed == swept.trashed == told
    assert ahead.nbytes == swept.nbytes == size + 153
    assert keys(client, "checkpoints") == ["checkpoints/step-1/manifest.json", "checkpoints/step-1/x-a2"]


def test_versions_of_one_name_are_told_in_the_order_of_their_deletion(store):
    tokens = []
    for number in range(3):
        save_blobs(store, "step-1", {f"x-b{number}": b"abc"}, attempt=f"b{number}")
        tokens.append(store.discard("step-1").token)

    assert [one.token for one in store.trash()] == tokens
    assert len({TrashToken.parse(token).nanoseconds for token in tokens}) == 3
    assert store.bring_back(tokens[1]) == "step-1"
    assert load_blobs(store, "step-1") == {"x-b1": b"abc"}
    with pytest.raises(CheckpointNotFound, match="step-9"):
        store.discard("step-9")


# --- small values ----------------------------------------------------------------------------------------------------


def test_a_value_that_is_too_large_is_an_error_in_its_place(client, store):
    store.write_sidecar("a", b"1")
    store.write_sidecar("c.x", b"3")
    client.put("root/.sidecars/b", bytes(SIDECAR_BYTES + 1))
    client.put("root/.sidecars/not a/name", b"")

    found = dict(store.read_sidecars())

    assert (found["a"], found["c.x"], list(found)) == (b"1", b"3", ["a", "b", "c.x"])
    assert isinstance(found["b"], LimitExceeded)
    assert f"has {SIDECAR_BYTES + 1} bytes, the limit is {SIDECAR_BYTES}. Remove it" in str(found["b"])
    client.put("root/.sidecars/b", bytes(SIDECAR_BYTES))
    assert dict(store.read_sidecars("b"))["b"] == bytes(SIDECAR_BYTES)


def test_an_attempt_that_is_given_up_leaves_nothing(client, store):
    stage = store.stage("step-1", "a1")
    seal_blob(stage, "x-a1", b"abc")

    stage.abort()

    assert keys(client) == []
    with pytest.raises(CheckpointNotFound, match=r"step-1"):
        store.read_manifest("step-1")
