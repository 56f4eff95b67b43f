"""The memory of background saves: used again, kept below its ceiling, and let go of whatever fails."""

import errno

import numpy as np
import pytest
from tests.engine.background.array_states import MIB, state_of
from tests.ground.stored.equal_values import same

import model_checkpoint as mc
from model_checkpoint.engine.background.save_async import finish_saves, save_async
from model_checkpoint.engine.background.staging_pool import POOL, StagingPool
from model_checkpoint.errors import MemoryRefused, StorageFailure
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing.faults import Fault, FaultyCalls, Kind


def test_the_second_save_is_staged_in_the_memory_of_the_first(tmp_path):
    finish_saves()
    places = []
    for step in (1, 2, 3):
        save_async(tmp_path, state_of(step, mib=24), step=step).result()
        places.append({slab.ctypes.data for slab in POOL._idle})

    assert places[0] == places[1] == places[2]
    assert 24 * MIB <= POOL.total < 32 * MIB


@pytest.mark.parametrize("share", [1 / 8, 1 / 2, 2])
def test_staging_memory_stays_below_its_ceiling_and_all_is_saved(tmp_path, share):
    finish_saves()
    state, POOL.peak = state_of(1, mib=64), 0
    limit = int(share * 64 * MIB)

    job = save_async(tmp_path, state, step=1, memory_limit=limit)
    job.result()

    assert 0 < POOL.peak <= limit
    assert same(mc.load(tmp_path, verify="full"), state)


def test_a_smaller_ceiling_makes_the_pool_let_go(tmp_path):
    save_async(tmp_path, state_of(1, mib=64), step=1, memory_limit=128 * MIB).result()
    assert POOL.total >= 64 * MIB

    save_async(tmp_path, state_of(1, mib=64), step=2, memory_limit=20 * MIB).result()

    assert POOL.total <= 20 * MIB
    finish_saves()
    assert POOL.total == 0


def test_a_ceiling_below_one_chunk_is_refused_with_the_least_that_works(tmp_path):
    state = state_of(1, mib=16)

    with pytest.raises(MemoryRefused, match="longest chunk needs 4202496") as caught:
        save_async(tmp_path, state, step=1, memory_limit=MIB)

    assert caught.value.checkpoint_path.endswith("step-00000001")
    save_async(tmp_path, state, step=1, memory_limit=4202496).result()
    assert same(mc.load(tmp_path), state)


def test_queued_saves_share_a_small_ceiling_without_a_deadlock(tmp_path):
    states = [state_of(i, mib=16) for i in range(4)]

    jobs = [save_async(tmp_path, s, step=i, memory_limit=9 * MIB, busy="queue") for i, s in enumerate(states)]

    for i, job in enumerate(jobs):
        job.result()
        assert same(mc.load(tmp_path, step=i), states[i])


def test_a_background_failure_in_the_middle_of_waves_reaches_the_handle(tmp_path):
    store = LocalStore(tmp_path, calls=FaultyCalls(Fault(kind=Kind.FAIL, at=25, code=errno.EIO, lasting=True)))

    job = save_async(store, state_of(1, mib=64), step=1, memory_limit=9 * MIB)

    with pytest.raises(StorageFailure, match="Input/output error"):
        job.result()
    finish_saves()
    assert POOL.total == 0


def test_an_array_that_cannot_be_read_fails_the_call_and_leaves_nothing(tmp_path):
    jax = pytest.importorskip("jax")
    gone = jax.numpy.arange(3_000_000)
    gone.delete()

    with pytest.raises(RuntimeError, match="deleted"):
        save_async(tmp_path, {"a": np.zeros(MIB), "b": gone}, step=1)

    finish_saves()
    assert POOL.total == 0
    assert not (tmp_path / "checkpoints").exists()


def test_the_arrays_of_the_caller_are_let_go_of_once_staged(tmp_path, gate):
    import weakref

    class Array(np.ndarray):
        pass

    owner = np.zeros(MIB).view(Array)
    gone = weakref.ref(owner)
    job = save_async(tmp_path, {"w": np.asarray(owner)}, step=1, progress=gate)
    assert gate.reached.wait(30)

    del owner

    assert gone() is None
    gate.opened.set()
    job.result()


def test_a_pool_never_holds_more_than_its_ceiling():
    pool = StagingPool()
    first = pool.take(8192, limit=16384, stopped=lambda: False)
    second = pool.take(8192, limit=16384, stopped=lambda: False)

    assert pool.take(4096, limit=16384, stopped=iter([False, True]).__next__) is None
    pool.give(first)
    assert pool.take(4096, limit=16384, stopped=lambda: False) is first
    pool.give(first)
    assert len(pool.take(12288, limit=20480, stopped=lambda: False)) == 12288
    assert pool.total == pool.peak == 20480
    assert second is not None
