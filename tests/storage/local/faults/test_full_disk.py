"""Whatever frees room works on a disk without one free block or inode: deleting, recovery, emptying the trash."""

import errno
import os

import pytest
from tests.ground.disks.full_disks import FULL_DISKS, fill_blocks, full_disk_of, mounted

import model_checkpoint as mc
from model_checkpoint.errors import DiskFull, DurabilityUnknown
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing import Fault, FaultyCalls, Kind, run_in_child
from model_checkpoint.testing.blobs import AT_ONCE, load_blobs, save_blobs

DATA = b"abc" * 50_000
MIB = 1 << 20

pytestmark = pytest.mark.slow


full_disk = full_disk_of(FULL_DISKS)


def require_full(root):
    with pytest.raises(DiskFull, match=r"full or over quota"):
        save_blobs(LocalStore(root), "step-9", {"x": DATA})


@pytest.mark.parametrize("made", [True, False], ids=["with trash", "of an older release"])
def test_on_a_full_disk_a_checkpoint_is_deleted_brought_back_and_its_room_freed(full_disk, made):
    mount_point, fill = full_disk
    root = mount_point / "runs"
    for step in (1, 2):
        mc.save(root, {"data": DATA}, step=step)
    if not made:
        (root / ".trash").rmdir()
    fill(mount_point)
    require_full(root)

    mc.delete(root, step=1)
    assert mc.undelete(root, step=1).step == 1
    assert mc.load(root, step=1) == {"data": DATA}
    mc.delete(root, step=1)
    before = os.statvfs(mount_point)
    swept = mc.collect_garbage(root, graces=AT_ONCE)
    after = os.statvfs(mount_point)

    assert len(swept.trashed) == 1
    assert swept.nbytes > len(DATA)
    assert (after.f_bfree - before.f_bfree) * after.f_frsize > len(DATA)
    assert after.f_ffree > before.f_ffree
    assert [info.step for info in mc.list_checkpoints(root)] == [2]
    assert mc.load(root) == {"data": DATA}


def test_on_a_full_disk_recovery_clears_what_a_dead_replacement_left(full_disk, tmp_path):
    """Where there is room that takes a folder in the trash."""
    mount_point, fill = full_disk
    root = mount_point / "runs"
    save_blobs(LocalStore(root), "step-1", {"x-a1": DATA}, attempt="a1")

    def replacing(calls):
        replace_step_1(LocalStore(root, calls=calls))

    run_in_child(replacing, Fault(kind=Kind.KILL_AFTER, at=switch_of(tmp_path / "copy")))
    assert (root / "checkpoints/step-1/x-a1").exists()
    fill(mount_point)

    LocalStore(root).sweep(AT_ONCE)

    assert load_blobs(LocalStore(root), "step-1") == {"x-a2": b"new"}
    assert set(LocalStore(root).files("step-1")) == {"x-a2", "manifest.json"}
    assert list((root / ".staging").iterdir()) == []


def replace_step_1(store):
    save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2", replace=True, obsolete=["x-a1"])


def switch_of(root):
    """The number of the call that switches the manifest, learnt where there is room."""
    save_blobs(LocalStore(root), "step-1", {"x-a1": DATA}, attempt="a1")
    calls = FaultyCalls()
    replace_step_1(LocalStore(root, calls=calls))
    return next(call.index for call in calls.trace if call.name == "rename" and call.path == "manifest.a2.tmp")


def test_with_no_room_for_one_more_name_a_deleted_checkpoint_is_removed_at_once(tmp_path, caplog):
    """One block of names is full to the last bytes, and there is no other."""
    with mounted(tmp_path, "ext4", nbytes=8 * MIB, flags=("-b", "1024", "-N", "1024")) as mount_point:
        root = mount_point / "runs"
        store = LocalStore(root)
        names = [f"step-{number:02d}" for number in range(59)]  # 16 bytes each
        for name in names:
            save_blobs(store, name, {"x": b"x" * 9000})
        (root / ".trash").rmdir()
        assert (root / "checkpoints").stat().st_size == 1024
        fill_blocks(mount_point)

        gone = store.discard("step-07")

        assert sorted(store.names()) == sorted(set(names) - {"step-07"})
        assert not (root / "checkpoints/step-07").exists()
        assert store.trash() == []
        assert "is removed at once and cannot be brought back" in caplog.text
        assert gone.nbytes > 9000
        free = os.statvfs(mount_point)
        assert free.f_bfree * free.f_frsize >= 9000


class WithoutRoom(Syscalls):
    """A disk or quota on which nothing can get a new name."""

    def __init__(self, code, *, spared=""):
        super().__init__()
        self.code, self.spared = code, spared

    def mkdir(self, path):
        raise OSError(self.code, os.strerror(self.code))

    def rename(self, source, target, **folders):
        if not self.spared or not target.rpartition("/")[0].endswith(self.spared):
            raise OSError(self.code, os.strerror(self.code))
        super().rename(source, target, **folders)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)
@pytest.mark.parametrize("spared", ["checkpoints", ""])
def test_without_room_for_names_trash_is_emptied_all_the_same(tmp_path, code, spared):
    for name in ("step-1", "step-2"):
        save_blobs(LocalStore(tmp_path), name, {"x": DATA})
    LocalStore(tmp_path).discard("step-1")
    store = LocalStore(tmp_path, calls=WithoutRoom(code, spared=spared))

    store.discard("step-2")
    kept = [item.name for item in store.trash()]
    swept = store.sweep(AT_ONCE)

    assert kept == (["step-1", "step-2"] if spared else ["step-1"])
    assert len(swept.trashed) == len(kept)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert os.listdir(tmp_path / ".trash") == []
    assert os.listdir(tmp_path / "checkpoints") == []


class LosesReplies(WithoutRoom):
    """The same, over a network that loses the answer to every removal."""

    def unlink(self, path):
        super().unlink(path)
        raise OSError(errno.EIO, "no answer")


def test_when_the_reply_to_the_last_removal_is_lost_what_is_there_decides(tmp_path):
    save_blobs(LocalStore(tmp_path), "step-1", {"x": DATA})

    with pytest.raises(DurabilityUnknown, match=r"step-1: it was deleted, but"):  # its data file could not be removed
        LocalStore(tmp_path, calls=LosesReplies(errno.ENOSPC)).discard("step-1")

    assert LocalStore(tmp_path).names() == []
