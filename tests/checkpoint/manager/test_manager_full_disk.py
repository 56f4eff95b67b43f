"""On a disk without one free block or inode, with the catalog on it, a manager frees room all the same."""

import os

import numpy as np
import pytest
from tests.ground.disks.full_disks import FULL_DISKS, fill_blocks, fill_inodes, full_disk_of

import model_checkpoint as mc
from model_checkpoint import EnhancedCheckpointManager
from model_checkpoint.database import DatabaseFull, Experiment
from model_checkpoint.errors import DiskFull

pytestmark = pytest.mark.slow

DATA = np.arange(40_000, dtype=np.float32)


def fill_all(mount_point):
    fill_blocks(mount_point)
    fill_inodes(mount_point)


full_disk = full_disk_of({**FULL_DISKS, "ext4 blocks and inodes": (*FULL_DISKS["ext4 inodes"][:2], fill_all)})


def managed(root):
    return EnhancedCheckpointManager(None, str(root), max_checkpoints=None, grace=0.0)


@pytest.fixture(params=["begun before", "begun on the full disk"])
def full(request, full_disk):
    """A manager on a full disk, and the ids of its five checkpoints."""
    mount_point, fill = full_disk
    manager = managed(mount_point / "runs")
    manager.connection.save_experiment(Experiment(id="r", name="r"))
    ids = [manager.save_checkpoint({"w": DATA}, step=n, val_loss=float(n), experiment_id="r") for n in range(5)]
    if request.param != "begun before":
        manager.close()
        manager = managed(mount_point / "runs")
    fill(mount_point)
    with manager:
        yield manager, ids


def there(manager):
    return {info.id for info in mc.list_checkpoints(manager.root)}


def test_a_manager_deletes_on_a_full_disk_and_the_catalog_follows(full):
    manager, ids = full
    with pytest.raises((DiskFull, DatabaseFull), match=r"full or over quota|takes no more"):
        manager.save_checkpoint({"w": DATA}, step=9, experiment_id="r")

    manager.delete_checkpoint(ids[1])
    assert there(manager) == {*ids} - {ids[1]}

    manager.prune("r", keep=[mc.last(1)])  # whose grace is over at once: there is room again
    assert there(manager) == {ids[4]}
    assert {row.id for row in manager.list_checkpoints("r")} == {ids[4]}
    deleted = [(one.subject, one.outcome) for one in manager.audit(action="delete").items]
    assert deleted == [(ids[1], "ok")]
    assert {one.subject for one in manager.audit(action="retention").items} == {ids[0], ids[2], ids[3]}
    assert manager.connection.open_intents() == []


def test_a_manager_prunes_a_full_disk_by_a_plan_and_has_room_again(full):
    manager, ids = full
    before = os.statvfs(manager.root)

    plan = manager.plan("r", keep=[mc.last(1), mc.best("val_loss")])
    done = manager.prune("r", plan=plan).done
    after = os.statvfs(manager.root)

    assert len(done) == 3
    assert there(manager) == {ids[0], ids[4]}
    assert (after.f_bfree - before.f_bfree) * after.f_frsize > DATA.nbytes
    assert {row.id for row in manager.list_checkpoints("r")} == {ids[0], ids[4]}
    assert np.array_equal(manager.load_checkpoint(ids[4])["model_state_dict"]["w"], DATA)
