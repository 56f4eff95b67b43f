"""Squeezed and incremental saves may die or fail at any single storage call: nothing acknowledged is lost."""

import errno
import shutil

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint import CompressionLevel
from model_checkpoint.engine import recover
from model_checkpoint.errors import CheckpointNotFound, DurabilityUnknown
from model_checkpoint.options import Graces
from model_checkpoint.storage.local import LocalStore
from model_checkpoint.testing.crash import Ended, each_call
from model_checkpoint.testing.faults import Fault, Kind, flushes_retried

pytestmark = [pytest.mark.fault, pytest.mark.slow]

NOW = Graces(local=0.0, foreign=0.0, trash=0.0)
FAULTS = [
    Fault(kind=Kind.KILL_BEFORE, at=0),
    Fault(kind=Kind.KILL_AFTER, at=0),
    *[Fault(kind=Kind.FAIL, at=0, code=code) for code in (errno.EIO, errno.ENOSPC, errno.EPERM)],
    Fault(kind=Kind.FAIL, at=0, code=errno.EIO, lasting=True),
    Fault(kind=Kind.LOSE_REPLY, at=0, code=errno.EIO),
    Fault(kind=Kind.SHORT_WRITE, at=0),
]
WAYS = {
    "squeezed": {"compression": CompressionLevel.FAST},
    "incremental": {"incremental": True},
    "both": {"compression": CompressionLevel.FAST, "incremental": True},
}


def name_of(fault):
    return f"{fault.kind.value}-{errno.errorcode.get(fault.code, '')}{'-lasting' if fault.lasting else ''}"


def state(epoch):
    return {"frozen": np.arange(3000, dtype=np.float32) % 9, "moving": np.full(2000, float(epoch)), "epoch": epoch}


def is_state(found, epoch):
    return found["epoch"] == epoch and all(np.array_equal(found[k], state(epoch)[k]) for k in ("frozen", "moving"))


class Ground:
    """A root with steps 1 and 2, which share a file where saves are incremental; made anew for each run."""

    def __init__(self, tmp_path, way):
        self.root, self.way = tmp_path / "root", way
        self.reset()

    def reset(self):
        recover._done.clear()  # as a new process would
        shutil.rmtree(self.root, ignore_errors=True)
        for epoch in (1, 2):
            mc.save(self.root, state(epoch), step=epoch, **self.way)

    def work(self, step):
        def save(calls):
            recover._done.clear()
            store = LocalStore(self.root, calls=calls)
            return mc.save(store, state(3), step=step, overwrite=True, **self.way).step

        return save

    def check(self, step, outcome):
        """Old steps are whole; the new state is there if acknowledged, and whole or absent otherwise."""
        assert is_state(mc.load(self.root, step=1), 1)
        old = 2 if step == 2 else None
        try:
            found = mc.load(self.root, step=step)
        except CheckpointNotFound:
            assert old is None
            assert not outcome.acknowledged
            return
        assert is_state(found, 3) or (old is not None and is_state(found, old))
        if outcome.acknowledged:
            assert is_state(found, 3)
        if outcome.ended is Ended.RAISED and not isinstance(outcome.error, DurabilityUnknown):
            assert old is not None
            assert is_state(found, old)

    def sweep(self):
        mc.collect_garbage(self.root, graces=NOW)
        assert all(health.ok for health in mc.verify(self.root))
        assert not [p for p in (self.root / ".staging").rglob("*") if p.is_file()]


@pytest.mark.parametrize(("way", "step"), [("squeezed", 3), ("incremental", 3), ("both", 2)])
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_no_fault_at_any_call_loses_an_acknowledged_save(tmp_path, way, step, fault):
    ground = Ground(tmp_path, WAYS[way])

    points = 0
    for _, outcome in each_call(ground.work(step), fault, prepare=ground.reset):
        points += 1
        ground.check(step, outcome)
        assert not flushes_retried(outcome.trace)
        ground.sweep()
        ground.check(step, outcome)

    assert points > 20


def test_the_incremental_runs_above_do_link(tmp_path):
    """Else they would prove nothing."""
    ground = Ground(tmp_path, WAYS["both"])

    mc.save(ground.root, state(3), step=3, **ground.way)

    assert [info.step for info in mc.list_checkpoints(ground.root) if info.shared_with] == [3, 2]


def test_deleting_one_of_two_that_share_may_die_at_any_call(tmp_path):
    ground = Ground(tmp_path, WAYS["incremental"])

    def prepare():
        ground.reset()
        mc.save(ground.root, state(3), step=3, **ground.way)

    def work(calls):
        store = LocalStore(ground.root, calls=calls)
        mc.delete(store, step=2)
        return len(store.sweep(NOW).trashed)

    for kind in (Kind.KILL_BEFORE, Kind.KILL_AFTER):
        for _, _ in each_call(work, Fault(kind=kind, at=0), prepare=prepare):
            assert is_state(mc.load(ground.root, step=3), 3)
            ground.sweep()
            assert is_state(mc.load(ground.root, step=3), 3)
