"""On a disk without one free block or inode, pruning frees room all the same, and costs nothing that stays."""

import os

import numpy as np
import pytest
from tests.ground.disks.full_disks import FULL_DISKS, full_disk_of
from tests.ground.stored.stored_files import steps

import model_checkpoint as mc
from model_checkpoint.errors import DiskFull
from model_checkpoint.options import Graces

pytestmark = pytest.mark.slow

DATA = np.arange(40_000, dtype=np.float32)


full_disk = full_disk_of(FULL_DISKS)


def test_a_full_disk_is_pruned_and_has_room_again(full_disk):
    mount_point, fill = full_disk
    root = mount_point / "runs"
    for step in range(1, 6):
        mc.save(root, {"data": DATA, "step": step}, step=step, metrics={"val_loss": step})
    mc.pin(root, step=2)
    fill(mount_point)
    with pytest.raises(DiskFull, match=r"full or over quota"):
        mc.save(root, {"data": DATA}, step=9)
    with pytest.raises(DiskFull, match=r"full or over quota"):
        mc.pin(root, step=3)
    before = os.statvfs(mount_point)

    told = mc.prune(root, keep=[mc.last(1), mc.best("val_loss")], dry_run=True)
    done = mc.prune(root, plan=told, grace=0).done
    after = os.statvfs(mount_point)

    assert done == ("step-00000003", "step-00000004")
    assert steps(root) == [1, 2, 5]
    assert told.freed_bytes >= 2 * DATA.nbytes
    assert (after.f_bfree - before.f_bfree) * after.f_frsize > DATA.nbytes  # XFS takes some for itself first
    assert np.array_equal(mc.load(root)["data"], DATA)
    assert mc.unpin(root, step=2).pinned is False
    mc.collect_garbage(root, graces=Graces(local=0.0, trash=0.0))
    assert mc.save(root, {"data": DATA[:9]}, step=10).step == 10
