"""A save, overwrite, delete or recovery may die or fail at any single storage call: nothing acknowledged is lost."""

import errno
import shutil

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.engine import recover
from model_checkpoint.errors import CheckpointNotFound, DurabilityUnknown
from model_checkpoint.options import Graces
from model_checkpoint.storage.local import LocalStore
from model_checkpoint.testing.crash import Ended, each_call, run_in_child
from model_checkpoint.testing.faults import Fault, Kind, flushes_retried

pytestmark = [pytest.mark.fault, pytest.mark.slow]

NOW = Graces(local=0.0, foreign=0.0, trash=0.0)
OLD = {"w": np.arange(3000, dtype=np.float32), "epoch": 1}
NEW = {"w": np.arange(3000, dtype=np.float32) * 2, "epoch": 2}
CODES = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE]
KILLS = [Fault(kind=Kind.KILL_BEFORE, at=0), Fault(kind=Kind.KILL_AFTER, at=0)]
FAILURES = [
    *[
        Fault(kind=kind, at=0, code=c, lasting=lasting)
        for kind in (Kind.FAIL, Kind.LOSE_REPLY)
        for c in CODES
        for lasting in (False, True)
    ],
    Fault(kind=Kind.SHORT_WRITE, at=0),
    Fault(kind=Kind.SHORT_WRITE, at=0, lasting=True),
]


def name_of(fault):
    return f"{fault.kind.value}-{errno.errorcode.get(fault.code, '')}{'-lasting' if fault.lasting else ''}"


def equal(state, expected):
    return state["epoch"] == expected["epoch"] and np.array_equal(state["w"], expected["w"])


class Ground:
    """A root with step 1 committed, made anew for each run."""

    def __init__(self, tmp_path):
        self.pristine, self.root = tmp_path / "pristine", tmp_path / "root"
        mc.save(self.pristine, OLD, step=1)

    def reset(self):
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.pristine, self.root)

    def store(self, calls):
        recover._done.clear()  # as a new process would
        return LocalStore(self.root, calls=calls)

    def leavings(self):
        """Files that belong to no committed checkpoint."""
        kept = {"manifest.json"} | {f.name for i in mc.list_checkpoints(self.root) for f in self.recorded(i)}
        return [p for p in self.root.rglob("*") if p.is_file() and p.name not in kept]

    def recorded(self, info):
        return [p for p in (self.root / "checkpoints" / info.prefix).iterdir() if info.id and p.is_file()]


def save_second(ground):
    return lambda calls: mc.save(ground.store(calls), NEW, step=2).step


def overwrite_first(ground):
    return lambda calls: mc.save(ground.store(calls), NEW, step=1, overwrite=True).step


def check_new_step(ground, outcome):
    """Step 1 is untouched; step 2 is whole if acknowledged, and whole or absent otherwise."""
    assert equal(mc.load(ground.root, step=1), OLD)
    try:
        second = mc.load(ground.root, step=2)
    except CheckpointNotFound:
        assert not outcome.acknowledged
        return
    assert equal(second, NEW)
    assert outcome.ended is not Ended.RAISED or isinstance(outcome.error, DurabilityUnknown)


def check_overwritten(ground, outcome):
    """Step 1 is the old or the new state, whole; the new one if acknowledged, the old one if the save failed."""
    state = mc.load(ground.root, step=1)
    assert equal(state, NEW) or equal(state, OLD)
    if outcome.acknowledged:
        assert equal(state, NEW)
    if outcome.ended is Ended.RAISED and not isinstance(outcome.error, DurabilityUnknown):
        assert equal(state, OLD)


def check_swept(ground):
    """After recovery only committed checkpoints are left."""
    mc.collect_garbage(ground.root, graces=NOW)
    assert all(health.ok for health in mc.verify(ground.root))
    assert not [p for p in (ground.root / ".staging").rglob("*") if p.is_file()]


OPERATIONS = {"save": (save_second, check_new_step), "overwrite": (overwrite_first, check_overwritten)}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fault", [*KILLS, *FAILURES], ids=name_of)
def test_no_fault_at_any_call_loses_an_acknowledged_save(tmp_path, operation, fault):
    work, check = OPERATIONS[operation]
    ground = Ground(tmp_path)

    points = 0
    for _, outcome in each_call(work(ground), fault, prepare=ground.reset):
        points += 1
        check(ground, outcome)
        check_swept(ground)
        check(ground, outcome)

    assert points > 20


@pytest.mark.parametrize("operation", OPERATIONS)
def test_recovery_may_be_killed_at_any_call_and_tried_again(tmp_path, operation):
    work, check = OPERATIONS[operation]
    ground, killed = Ground(tmp_path), Fault(kind=Kind.KILL_BEFORE, at=0)
    for at, outcome in each_call(work(ground), killed, prepare=ground.reset):

        def again(at=at):
            ground.reset()
            run_in_child(work(ground), Fault(kind=Kind.KILL_BEFORE, at=at))

        for _, _ in each_call(lambda calls: len(ground.store(calls).sweep(NOW).attempts), killed, prepare=again):
            check(ground, outcome)
            check_swept(ground)
            check(ground, outcome)


@pytest.mark.parametrize("fault", [*KILLS, *FAILURES], ids=name_of)
def test_a_delete_that_dies_or_fails_leaves_the_checkpoint_whole_or_in_the_trash(tmp_path, fault):
    ground = Ground(tmp_path)
    mc.save(ground.pristine, NEW, step=2)

    for _, outcome in each_call(lambda calls: mc.delete(ground.store(calls), step=2).step, fault, prepare=ground.reset):
        assert equal(mc.load(ground.root, step=1), OLD)
        steps = [info.step for info in mc.list_checkpoints(ground.root)]
        if outcome.acknowledged:
            assert steps == [1]
        if steps == [1]:
            mc.undelete(ground.root, step=2)
        assert equal(mc.load(ground.root, step=2), NEW)


def test_fsync_is_never_tried_twice_on_the_same_file(tmp_path):
    ground = Ground(tmp_path)
    for work, _ in OPERATIONS.values():
        for code in (errno.EIO, errno.ENOSPC):
            for lasting in (False, True):
                fault = Fault(kind=Kind.FAIL, at=0, code=code, lasting=lasting)
                for _, outcome in each_call(work(ground), fault, prepare=ground.reset):
                    assert flushes_retried(outcome.trace) == []


def test_a_live_save_of_another_process_is_never_touched_by_recovery(tmp_path):
    store = LocalStore(tmp_path)
    stage = store.stage("step-00000009", "f" * 32)
    writer = stage.create("r0-0-" + "f" * 32 + ".safetensors", 8192)

    swept = run_in_child(lambda calls: LocalStore(tmp_path, calls=calls).sweep(NOW)).value

    assert list(swept.attempts) == []
    assert [a for a in swept.alive if "f" * 32 in a]
    assert writer is not None
    assert (tmp_path / ".staging" / ("f" * 32)).is_dir()
    stage.abort()
