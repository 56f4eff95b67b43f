"""Single calls that fail, or report a failure although they were made: what is there tells, and what is not is told."""

import errno
import os
from pathlib import Path

import pytest
from tests.storage.local.faults.failing_calls import left

from model_checkpoint.errors import DurabilityUnknown, LimitExceeded, StorageFailure, UnsafeName
from model_checkpoint.storage.contract.sidecars import SIDECAR_BYTES, sidecars_of
from model_checkpoint.testing.blobs import AT_ONCE, blob_manifest, load_blobs, seal_blob

# --- small values ----------------------------------------------------------------------------------------------------


def test_a_value_whose_rename_was_made_is_kept_and_one_whose_was_not_is_told(store, calls, tmp_path, caplog):
    calls.fail("rename", errno.EIO, at=".sidecars", made=True)
    store.write_sidecar("a", b"one")
    assert "reported" in caplog.text
    calls.fail("rename", errno.EIO, at=".sidecars")

    with pytest.raises(StorageFailure, match=r"a: could not be written"):
        store.write_sidecar("a", b"two")

    assert list(store.read_sidecars()) == [("a", b"one")]
    assert left(tmp_path / ".staging") == []


def test_a_removal_that_was_made_is_a_removal_and_one_that_was_not_is_told(store, calls, caplog):
    store.write_sidecar("a", b"one")
    calls.fail("unlink", errno.EIO, at=".sidecars/a")
    with pytest.raises(StorageFailure, match=r"a: could not be removed"):
        store.remove_sidecar("a")
    assert list(store.read_sidecars()) == [("a", b"one")]
    calls.fail("unlink", errno.EIO, at=".sidecars/a", made=True)
    store.remove_sidecar("a")

    assert "its removal reported" in caplog.text
    assert list(store.read_sidecars()) == []


def test_where_nobody_can_look_a_removal_is_not_taken_for_made(store, calls):
    store.write_sidecar("a", b"one")
    calls.fail("unlink", errno.EIO, at=".sidecars/a", made=True)
    calls.fail("lstat", errno.EIO, at=".sidecars/a")

    with pytest.raises(StorageFailure, match=r"a: could not be removed"):
        store.remove_sidecar("a")


@pytest.mark.parametrize("act", [lambda store: store.write_sidecar("a", b"1"), lambda store: store.remove_sidecar("a")])
def test_a_value_that_may_not_last_is_in_doubt(store, calls, act):
    store.write_sidecar("a", b"1")
    calls.fail("fsync_dir", errno.EIO, at=".sidecars")

    with pytest.raises(DurabilityUnknown, match=r"a: it was (written|removed), but the last flush failed"):
        act(store)


def test_a_stage_that_cannot_be_removed_waits_for_recovery(store, calls, tmp_path):
    calls.fail("unlink", errno.EIO, at="sidecar")
    calls.fail("rename", errno.EIO, at=".sidecars")

    with pytest.raises(StorageFailure, match=r"a: could not be written"):
        store.write_sidecar("a", b"1")

    assert len(left(tmp_path / ".staging")) == 2  # the stage and its lock
    calls.wrong.clear()
    assert len(store.sweep(AT_ONCE).attempts) == 1
    assert left(tmp_path / ".staging") == []


def test_a_value_that_is_too_large_or_no_file_is_an_error_in_its_place(store, tmp_path):
    store.write_sidecar("a", b"1")
    (tmp_path / ".sidecars" / "b").write_bytes(bytes(SIDECAR_BYTES + 1))
    (tmp_path / ".sidecars" / "c").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".sidecars" / "d").write_bytes(bytes(SIDECAR_BYTES))
    (tmp_path / ".sidecars" / "e f").mkdir()

    found = dict(store.read_sidecars())

    assert list(found) == ["a", "b", "c", "d"]
    assert isinstance(found["b"], LimitExceeded)
    assert f"has {SIDECAR_BYTES + 1} bytes, the limit is {SIDECAR_BYTES}" in str(found["b"])
    assert isinstance(found["c"], UnsafeName)
    assert len(found["d"]) == SIDECAR_BYTES


def test_a_store_without_values_is_told_what_it_lacks():
    class Bare:
        url = "bare://x"

    with pytest.raises(StorageFailure, match=r"bare://x: this store keeps no pins, tags or notes\. Give Bare the meth"):
        sidecars_of(Bare())


# --- files of others -------------------------------------------------------------------------------------------------


@pytest.fixture
def stage(store):
    """An attempt with files of others in its room."""
    made = store.stage("step-1", "a1")
    room = Path(made.room())
    (room / "theirs").write_bytes(b"abc")
    (room / "more").write_bytes(b"left over")
    return made


def test_what_others_wrote_into_the_room_is_taken_over(stage, tmp_path):
    reader = stage.adopt("theirs", "x-a1")
    assert reader.size == 3
    reader.close()
    with pytest.raises(UnsafeName, match=r"X-a1.*differs from another one only in case"):
        stage.adopt("more", "X-a1")  # a name that some disks take for the same
    with pytest.raises(StorageFailure, match=r"y-a1: could not be taken into the stage"):
        stage.adopt("nothing", "y-a1")
    stage.abort()

    assert left(tmp_path / ".staging") == []
    for again in (stage.room, lambda: stage.adopt("theirs", "z-a1")):
        with pytest.raises(StorageFailure, match="is over"):
            again()


def test_the_room_is_no_part_of_the_checkpoint(store, stage, tmp_path):
    stage.adopt("theirs", "x-a1").close()

    stage.publish(blob_manifest("step-1", "a1", {"x-a1": b"abc"}))

    assert load_blobs(store, "step-1") == {"x-a1": b"abc"}
    assert left(tmp_path / "checkpoints" / "step-1") == ["manifest.json", "x-a1"]


def test_a_room_that_cannot_be_made_is_told(store, calls):
    stage = store.stage("step-1", "a1")
    calls.fail("mkdir", errno.EACCES)

    with pytest.raises(StorageFailure, match="could not make room for files of others"):
        stage.room()
    calls.wrong.clear()
    stage.abort()


# --- attempts of many ranks ------------------------------------------------------------------------------------------


def shared(store):
    leader, other = store.stage_shared("step-1", "a1"), store.join("step-1", "a1")
    for attempt, file in ((leader, "r0-a1"), (other, "r1-a1")):
        seal_blob(attempt, file, b"abc")
    return leader, other


def test_only_rank_0_publishes_and_each_rank_reads_what_is_staged(store):
    leader, other = shared(store)
    leader.flush()
    other.flush()
    other.beat()

    reader, room = leader.open("r1-a1"), bytearray(3)
    reader.read_into(0, memoryview(room))
    reader.close()
    with pytest.raises(StorageFailure, match="is over"):
        other.publish(b"{}")
    other.abort()
    with pytest.raises(StorageFailure, match="is over"):
        other.open("r1-a1")

    assert bytes(room) == b"abc"
    leader.publish(blob_manifest("step-1", "a1", {"r0-a1": b"abc", "r1-a1": b"abc"}))
    assert load_blobs(store, "step-1") == {"r0-a1": b"abc", "r1-a1": b"abc"}
    with pytest.raises(StorageFailure, match="is over"):
        leader.drop(["r0-a1"])


def test_a_file_that_a_rank_left_open_is_closed_when_it_gives_up(store):
    _, other = shared(store)
    other.create("r1-more-a1", 3)
    before = len(os.listdir("/proc/self/fd"))

    other.abort()
    other.abort()

    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_where_the_manifest_cannot_be_read_nobody_knows_the_outcome(store, tmp_path):
    shared(store)
    (tmp_path / "checkpoints" / "step-1").mkdir()
    (tmp_path / "checkpoints" / "step-1" / "manifest.json").write_bytes(b"nothing")

    with pytest.raises(DurabilityUnknown, match=r"the checkpoint may be in place"):
        store.settle("step-1", "a1")


def test_a_settled_checkpoint_whose_names_are_not_flushed_is_in_doubt(store, calls):
    leader, _ = shared(store)
    leader.publish(blob_manifest("step-1", "a1", {"r0-a1": b"abc", "r1-a1": b"abc"}))
    calls.fail("fsync_dir", errno.EIO, at="checkpoints")

    with pytest.raises(DurabilityUnknown, match="the checkpoint is in place, but the last flush failed"):
        store.settle("step-1", "a1")


def test_what_cannot_be_removed_of_a_settled_attempt_waits_for_recovery(store, calls, tmp_path, caplog):
    shared(store)
    calls.fail("unlink", errno.EIO, at="aborted")

    assert not store.settle("step-1", "a1")

    assert "leavings stay until the next recovery" in caplog.text
    assert "aborted-a1" in left(tmp_path / ".staging")
