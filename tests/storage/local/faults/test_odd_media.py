"""Disks without room for a name, attempts of other users, and media with quirks: what a local root makes of them."""

import errno
import os

import pytest
from tests.storage.local.faults.failing_calls import FailingCalls, left

from model_checkpoint.errors import CheckpointNotFound, DiskFull, OptionInvalid, StorageFailure, UnsupportedType
from model_checkpoint.options import Graces
from model_checkpoint.storage import open_store
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing.blobs import AT_ONCE, blob_manifest, load_blobs, save_blobs, seal_blob

FILES = {"x-a1": b"one" * 50, "y-a1": b"two"}


# --- a disk without room for a name ----------------------------------------------------------------------------------


def test_on_a_disk_without_room_for_a_name_a_deletion_is_final(store, calls, tmp_path, caplog):
    save_blobs(store, "step-1", FILES, attempt="a1")
    calls.fail("rename", errno.ENOSPC)
    calls.fail("mkdir", errno.ENOSPC)

    store.discard("step-1")

    assert store.names() == []
    assert store.trash() == []
    assert left(tmp_path / "checkpoints") == []
    assert "cannot be brought back" in caplog.text


@pytest.mark.parametrize("made", [False, True])
def test_a_final_deletion_whose_reply_was_lost_is_found_out(store, calls, made):
    save_blobs(store, "step-1", FILES, attempt="a1")
    for name in ("rename", "mkdir"):
        calls.fail(name, errno.ENOSPC)
    calls.fail("unlink", errno.EIO, at="manifest.json", made=made)

    if made:
        store.discard("step-1")
        assert store.names() == []
    else:
        with pytest.raises(StorageFailure, match="could not be moved to the trash"):
            store.discard("step-1")
        assert load_blobs(store, "step-1") == FILES


def test_another_failure_than_a_full_disk_deletes_nothing(store, calls):
    save_blobs(store, "step-1", FILES, attempt="a1")
    calls.fail("rename", errno.EROFS)

    with pytest.raises(StorageFailure, match="could not be moved to the trash"):
        store.discard("step-1")

    calls.wrong.clear()
    assert load_blobs(store, "step-1") == FILES


def test_a_checkpoint_that_somebody_else_deletes_first_is_not_found(store, tmp_path, calls):
    save_blobs(store, "step-1", FILES, attempt="a1")

    class Rival(FailingCalls):
        def lstat(self, path, *args, **kwargs):
            if str(path).endswith("step-1") and LocalStore(tmp_path).has("step-1"):
                LocalStore(tmp_path).discard("step-1")
            return super().lstat(path, *args, **kwargs)

    with pytest.raises(CheckpointNotFound, match="step-1"):
        LocalStore(tmp_path, calls=Rival()).discard("step-1")
    assert len(store.trash()) == 1


def test_a_full_disk_says_so_at_the_first_file(store, calls):
    calls.fail("mkdir", errno.ENOSPC)

    with pytest.raises(DiskFull, match="the disk is full or over quota"):
        store.stage("step-1", "a1")


def test_what_a_full_disk_cannot_keep_of_a_replaced_version_is_removed_at_once(store, calls, tmp_path, caplog):
    save_blobs(store, "step-1", FILES, attempt="a1")
    calls.fail("mkdir", errno.ENOSPC, at=".trash")
    calls.fail("link", errno.ENOSPC, at="manifest.replaced")

    with_room = save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2", replace=True, obsolete=list(FILES))

    assert with_room == "a2"
    assert load_blobs(store, "step-1") == {"x-a2": b"new"}
    assert left(tmp_path / "checkpoints" / "step-1") == ["manifest.json", "x-a2"]
    assert "are removed at once; the disk has no room to keep them" in caplog.text
    assert store.trash() == []


def test_what_is_purged_on_a_full_disk_cannot_come_back(store, calls, tmp_path):
    save_blobs(store, "step-1", FILES, attempt="a1")
    token = store.discard("step-1").token
    calls.fail("rename", errno.ENOSPC)

    swept = store.sweep(AT_ONCE)

    assert swept.trashed == [token]
    assert swept.nbytes == 153  # its manifest went first
    assert left(tmp_path / ".trash") == []


# --- recovery --------------------------------------------------------------------------------------------------------


def dead(store):
    """An attempt whose owner is gone."""
    stage = store.stage("step-9", "a9")
    seal_blob(stage, "x-a9", b"abc")
    stage._lock.leave()


def test_an_attempt_of_another_user_is_left_alone(store, calls, tmp_path, caplog):
    dead(store)
    calls.fail("open", errno.EACCES, at="a9.lock")

    swept = store.sweep(AT_ONCE)

    assert (swept.attempts, [(one.key, one.seconds) for one in swept.waiting]) == ([], [("a9", None)])
    assert "belongs to another user, left alone" in caplog.text
    assert left(tmp_path / ".staging") == ["a9", "a9.lock"]
    calls.fail("open", errno.EIO, at="a9.lock")
    with pytest.raises((StorageFailure, OSError), match=r"a9|error"):
        store.sweep(AT_ONCE)


def test_a_dry_run_weighs_what_recovery_then_removes(store, tmp_path):
    dead(store)

    ahead, swept = store.sweep(AT_ONCE, dry_run=True), store.sweep(AT_ONCE)

    assert ahead.attempts == swept.attempts == ["a9"]
    assert ahead.nbytes == swept.nbytes > 0
    assert left(tmp_path / ".staging") == []


def test_a_lock_without_a_stage_weighs_nothing(store, tmp_path):
    dead(store)
    for file in (tmp_path / ".staging" / "a9").iterdir():
        file.unlink()
    (tmp_path / ".staging" / "a9").rmdir()

    assert store.sweep(AT_ONCE, dry_run=True).nbytes == 0
    assert store.sweep(AT_ONCE).attempts == ["a9"]


def test_a_stage_without_a_lock_waits_for_its_grace(store, tmp_path):
    dead(store)
    (tmp_path / ".staging" / "a9.lock").unlink()

    (waiting,) = store.sweep(Graces(local=60.0, foreign=60.0, trash=0.0)).waiting
    assert waiting.key == "a9"
    assert 0 < waiting.seconds <= 60
    assert store.sweep(AT_ONCE).attempts == ["a9"]
    assert left(tmp_path / ".staging") == []


def test_where_a_folder_cannot_be_stamped_the_clock_of_the_machine_tells(store, calls, tmp_path):
    dead(store)
    (tmp_path / ".staging" / "a9.lock").unlink()
    calls.fail("utime", errno.EPERM)

    assert store.sweep(Graces(local=3600.0, foreign=3600.0, trash=0.0)).attempts == []
    calls.fail("utime", errno.EIO)
    with pytest.raises((StorageFailure, OSError), match=r"nput/output"):
        store.sweep(AT_ONCE)


# --- the medium ------------------------------------------------------------------------------------------------------


def test_a_write_that_writes_nothing_is_a_failure_and_not_an_endless_loop(tmp_path):
    class Stuck(Syscalls):
        def pwrite(self, fd, data, offset):
            return 0 if self.stuck else super().pwrite(fd, data, offset)

        stuck = False

    calls = Stuck()
    stage = LocalStore(tmp_path, calls=calls).stage("step-1", "a1")
    calls.stuck = True

    with pytest.raises(StorageFailure, match=r"could not write the manifest"):
        stage.publish(blob_manifest("step-1", "a1", {}))
    calls.stuck = False
    stage.abort()


def test_a_file_system_that_locks_no_folders_is_replaced_on_all_the_same(store, calls):
    save_blobs(store, "step-1", FILES, attempt="a1")
    stage = store.stage("step-1", "a2")
    calls.fail("flock", errno.ENOTSUP)

    stage.publish(blob_manifest("step-1", "a2", {}), replace=True, obsolete=list(FILES))

    assert load_blobs(store, "step-1") == {}


@pytest.mark.parametrize("code", [errno.ENODEV, errno.ENOMEM, errno.EINVAL])
def test_where_the_cache_cannot_be_asked_files_are_read_through_it(store, calls, code):
    data = os.urandom(1 << 20) * 9  # large enough to be asked about
    save_blobs(store, "step-1", {"x-a1": data}, attempt="a1")
    calls.fail("resident", code)

    assert load_blobs(store, "step-1") == {"x-a1": data}
    calls.fail("resident", errno.EIO)
    with pytest.raises(StorageFailure, match="x-a1"):
        store.open("step-1", "x-a1")


# --- roots -----------------------------------------------------------------------------------------------------------


def test_a_root_is_a_path_a_url_or_a_store(store, monkeypatch, tmp_path):
    class Bare:
        """Less than a store."""

    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store(store) is store
    assert open_store("~/runs").url == str(tmp_path / "runs")
    assert open_store(tmp_path).url == str(tmp_path)
    with pytest.raises(UnsupportedType, match="a root is a path, a URL or a store, got"):
        open_store(Bare())
    with pytest.raises(UnsupportedType, match="a root is a path, a URL or a store, got 5"):
        open_store(5)
    with pytest.raises(OptionInvalid, match="the root is an empty path"):
        open_store("")
    assert type(open_store("s3://bucket/x")).__name__ == "ObjectStore"
