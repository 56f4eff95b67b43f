"""What only background saves do, at every storage call: queues, waves, lazy copies, and telling of a failure late.

That they lose nothing under any fault is shown with all other ways to save in ``test_engine_faults``.
"""

import errno
from contextlib import suppress

import numpy as np
import pytest
from tests.engine.faults.fault_ground import KILLS, SAVE, WAYS, Ground, name_of, state

import model_checkpoint as mc
from model_checkpoint.engine.background.save_async import save_async
from model_checkpoint.errors import BackgroundSaveFailed
from model_checkpoint.testing import Ended, Fault, Kind, each_call, run_here

pytestmark = [pytest.mark.fault, pytest.mark.slow]

EIO = Fault(kind=Kind.FAIL, at=0, code=errno.EIO)
BACKGROUND = WAYS[1]


@pytest.fixture
def ground(quick_folder):
    return Ground(quick_folder, BACKGROUND, SAVE)


def save_two(ground):
    """The second behind the first."""

    def work(calls):
        store = ground.store(calls)
        first = save_async(store, state(3), step=3)
        try:
            second = save_async(store, state(4), step=4, busy="queue").result()
        finally:
            first.exception()  # waits for its end, whatever became of the other
        return first.result().step, second.step

    return work


@pytest.mark.parametrize("fault", [*KILLS, EIO], ids=name_of)
def test_a_fault_at_any_call_harms_neither_of_two_saves_in_a_queue(ground, fault):
    points = 0

    for _, outcome in each_call(save_two(ground), fault, prepare=ground.reset):
        points += 1
        seen = ground.seen()
        assert {1: 1, 2: 2}.items() <= seen.items() <= {1: 1, 2: 2, 3: 3, 4: 4}.items()
        assert not outcome.acknowledged or len(seen) == 4
        ground.check_recovered()

    assert points > 60


@pytest.mark.parametrize("fault", [*KILLS, EIO], ids=name_of)
def test_no_fault_at_any_call_loses_a_save_made_in_waves(ground, fault):
    big = {"w": np.arange(3 << 20, dtype=np.float32), "epoch": 2}

    def work(calls):
        return save_async(ground.store(calls), big, step=3, memory_limit=5 << 20).result().step

    for _, outcome in each_call(work, fault, prepare=ground.reset):
        steps = [info.step for info in mc.list_checkpoints(ground.root)]
        assert steps[-2:] == [2, 1]
        if outcome.acknowledged:
            assert 3 in steps
        if 3 in steps:
            assert np.array_equal(mc.load(ground.root, step=3)["w"], big["w"])
            assert outcome.ended is not Ended.RAISED or "power loss" in str(outcome.error)


def test_a_failure_at_any_call_is_raised_by_the_next_save(ground):
    """Whoever never looks at a handle learns of the failure when saving again."""

    def work(calls):
        save_async(ground.store(calls), state(3), step=3)
        try:
            return mc.save(ground.root, state(4), step=4).step
        except BackgroundSaveFailed:
            return "told"

    told = 0
    for _, outcome in each_call(work, EIO, prepare=ground.reset):
        steps = [info.step for info in mc.list_checkpoints(ground.root)]
        failed = outcome.value == "told" or outcome.ended is Ended.RAISED  # by the call itself
        told += outcome.value == "told"
        assert failed == (4 not in steps)
        assert failed or 3 in steps
        with suppress(BackgroundSaveFailed):  # told once more, since nobody has asked the handle
            mc.finish_saves(ground.root)

    assert told > 20


def test_a_kill_while_a_lazy_copy_is_under_way_leaves_the_old_checkpoint(ground):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # a forked child has no threads to share a tensor with
    weight = torch.nn.Parameter(torch.ones(3 << 20))
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def work(calls):
        job = save_async(ground.store(calls), {"w": weight, "o": optimizer}, step=3, lazy=True, memory_limit=5 << 20)
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        return job.result().step

    for _, outcome in each_call(work, KILLS[0], prepare=ground.reset):
        steps = [info.step for info in mc.list_checkpoints(ground.root)]
        assert steps[-2:] == [2, 1]
        assert not outcome.acknowledged or 3 in steps
        if 3 in steps:
            assert torch.equal(mc.load(ground.root, step=3)["w"].detach(), torch.ones(3 << 20))
    ground.reset()
    assert run_here(work).acknowledged
