"""A background save may die or fail at any single storage call: nothing acknowledged is lost, nothing half is seen."""

import errno

import numpy as np
import pytest
from test_engine_faults import KILLS, NEW, Ground, check_new_step, check_overwritten, check_swept, name_of

import model_checkpoint as mc
from model_checkpoint.engine.background import save_async
from model_checkpoint.errors import BackgroundSaveFailed
from model_checkpoint.testing.crash import Ended, each_call, run_in_child
from model_checkpoint.testing.faults import Fault, Kind, flushes_retried

pytestmark = [pytest.mark.fault, pytest.mark.slow]

FAULTS = [
    *KILLS,
    *[
        Fault(kind=kind, at=0, code=errno.EIO, lasting=lasting)
        for kind in (Kind.FAIL, Kind.LOSE_REPLY)
        for lasting in (False, True)
    ],
    Fault(kind=Kind.FAIL, at=0, code=errno.ENOSPC),
    Fault(kind=Kind.SHORT_WRITE, at=0, lasting=True),
]


def save_second(ground):
    return lambda calls: save_async(ground.store(calls), NEW, step=2).result().step


def overwrite_first(ground):
    return lambda calls: save_async(ground.store(calls), NEW, step=1, overwrite=True).result().step


def save_second_queued(ground):
    """Behind a save of another step."""

    def work(calls):
        store = ground.store(calls)
        first = save_async(store, NEW, step=3)
        second = save_async(store, NEW, step=2, busy="queue")
        return first.result().step, second.result().step

    return work


OPERATIONS = {
    "save": (save_second, check_new_step),
    "overwrite": (overwrite_first, check_overwritten),
}


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_fault_at_any_call_loses_an_acknowledged_background_save(tmp_path, operation, fault):
    work, check = OPERATIONS[operation]
    ground, points = Ground(tmp_path), 0

    for _, outcome in each_call(work(ground), fault, prepare=ground.reset):
        points += 1
        check(ground, outcome)
        assert not flushes_retried(outcome.trace)
        check_swept(ground)
        check(ground, outcome)

    assert points > 20


@pytest.mark.parametrize("fault", KILLS, ids=name_of)
def test_a_kill_at_any_call_harms_neither_of_two_saves_in_a_queue(tmp_path, fault):
    ground = Ground(tmp_path)

    for _, outcome in each_call(save_second_queued(ground), fault, prepare=ground.reset):
        check_new_step(ground, outcome)
        assert all(health.ok for health in mc.verify(ground.root))
        check_swept(ground)


@pytest.mark.parametrize("fault", [*KILLS, Fault(kind=Kind.FAIL, at=0, code=errno.EIO)], ids=name_of)
def test_no_fault_at_any_call_loses_a_save_made_in_waves(tmp_path, fault):
    big = {"w": np.arange(3 << 20, dtype=np.float32), "epoch": 2}
    ground = Ground(tmp_path)

    def work(calls):
        return save_async(ground.store(calls), big, step=2, memory_limit=5 << 20).result().step

    for _, outcome in each_call(work, fault, prepare=ground.reset):
        steps = [info.step for info in mc.list_checkpoints(ground.root)]
        assert 1 in steps
        if outcome.acknowledged:
            assert 2 in steps
        if 2 in steps:
            assert np.array_equal(mc.load(ground.root, step=2)["w"], big["w"])


def test_a_failure_at_any_call_is_raised_by_the_next_save(tmp_path):
    """Whoever never looks at a handle learns of the failure when saving again."""
    ground = Ground(tmp_path)

    def work(calls):
        save_async(ground.store(calls), NEW, step=2)
        try:
            return mc.save(ground.root, NEW, step=3).step
        except BackgroundSaveFailed:
            return "told"

    for _, outcome in each_call(work, Fault(kind=Kind.FAIL, at=0, code=errno.EIO), prepare=ground.reset):
        steps = [info.step for info in mc.list_checkpoints(ground.root)]
        told = outcome.value == "told" or outcome.ended is Ended.RAISED  # by the call itself
        assert told == (3 not in steps)
        assert told or 2 in steps


def test_a_kill_while_a_lazy_copy_is_under_way_leaves_the_old_checkpoint(tmp_path):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # a forked child has no threads to share a tensor with
    ground = Ground(tmp_path)
    weight = torch.nn.Parameter(torch.ones(3 << 20))
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def work(calls):
        job = save_async(ground.store(calls), {"w": weight, "o": optimizer}, step=2, lazy=True, memory_limit=5 << 20)
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        return job.result().step

    for _, outcome in each_call(work, KILLS[0], prepare=ground.reset):
        steps = [info.step for info in mc.list_checkpoints(ground.root)]
        assert 1 in steps
        assert not outcome.acknowledged or 2 in steps
        if 2 in steps:
            assert torch.equal(mc.load(ground.root, step=2)["w"].detach(), torch.ones(3 << 20))
    ground.reset()
    assert run_in_child(work).acknowledged
