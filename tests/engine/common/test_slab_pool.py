"""What saves are done with lies ready for the next save, for nobody else, and is the system's to take back."""

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.ground.crowds import in_child, in_threads

import model_checkpoint as mc
from model_checkpoint.engine.background.save_async import finish_saves
from model_checkpoint.engine.common.slab_pool import SlabPool
from model_checkpoint.engine.writing.slabs import SLAB_POOL, SLABS_BYTES

MIB = 1 << 20


def address(slab):
    return slab.ctypes.data


def test_a_slab_that_came_back_is_lent_again():
    pool = SlabPool(most=64 * MIB)
    with pool.lent(4 * MIB) as slab, pool.lent(8 * MIB) as other:
        first, second = address(slab), address(other)

    with pool.lent(2 * MIB) as slab, pool.lent(8 * MIB) as other:
        assert (address(slab), address(other)) == (first, second)
        assert pool.idle_bytes == 0


def test_what_lies_idle_stays_below_the_bound_and_the_longest_stay():
    pool = SlabPool(most=10 * MIB)

    with pool.lent(4 * MIB), pool.lent(2 * MIB), pool.lent(6 * MIB):
        pass

    assert pool.idle_bytes == 10 * MIB


def test_slabs_that_are_always_too_short_do_not_pile_up():
    pool = SlabPool(most=64 * MIB)

    for pages in range(1, 9):
        with pool.lent(4096 * pages):
            pass

    assert pool.idle_bytes == 4096 * 8


def test_after_an_error_a_slab_is_not_lent_again():
    pool = SlabPool(most=64 * MIB)

    with pytest.raises(OSError, match="the medium"), pool.lent(4 * MIB):
        raise OSError("the medium is gone")

    assert pool.idle_bytes == 0


def test_no_two_have_one_slab_at_a_time():
    pool, wrong = SlabPool(most=MIB), []

    def work(number):
        for _ in range(300):
            with pool.lent(16 * 4096) as slab:
                slab[:] = number
                if not (slab == number).all():
                    wrong.append(number)

    in_threads(work, range(4))

    assert not wrong
    assert pool.idle_bytes <= 4 * 16 * 4096


def test_a_child_begins_with_an_empty_shelf_and_leaves_the_parent_s_alone():
    pool = SlabPool(most=64 * MIB)
    with pool.lent(4 * MIB) as slab:
        pass
    slab[:] = 7

    def work():
        assert pool.idle_bytes == 0
        with pool.lent(4 * MIB) as own:
            own[:] = 9
        assert own.all()

    assert in_child(work) == 0
    assert (slab == 7).all()
    with pool.lent(4 * MIB) as again:
        assert again is slab


def test_a_child_forked_while_a_slab_is_in_use_has_what_is_in_it():
    """Else a save that goes on in the child would write zeros."""
    pool = SlabPool(most=64 * MIB)

    def work(slab, number):
        assert (slab == number).all()

    for number in (3, 4):  # a fresh one, then one that lay idle
        with pool.lent(4 * MIB) as slab:
            slab[:] = number
            assert in_child(work, slab, number) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel what it may take")
def test_the_system_may_take_what_lies_idle():
    pool = SlabPool(most=64 * MIB)
    before = free_to_take()
    with pool.lent(16 * MIB) as slab:
        slab[:] = 1

    assert free_to_take() - before >= 16 * MIB


def free_to_take():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("LazyFree:"))


def test_a_save_leaves_its_slabs_for_the_next_until_saves_are_finished(tmp_path):
    finish_saves()
    state = {"model": np.arange(8 * MIB, dtype=np.float32)}

    mc.save(tmp_path, state, step=1)
    kept = SLAB_POOL.idle_bytes
    mc.save(tmp_path, state, step=2)

    assert 0 < kept <= SLABS_BYTES
    assert np.array_equal(mc.load(tmp_path)["model"], state["model"])
    finish_saves()
    assert SLAB_POOL.idle_bytes == 0


def test_what_an_earlier_save_left_in_a_slab_is_not_in_the_next(tmp_path):
    """Files end within a page: what follows there is not to be seen, nor are the edges of runs."""
    mc.save(tmp_path, {"model": np.full(5 * MIB, 7, dtype=np.uint8)}, step=1)
    odd = {f"t{i}": np.full(4097 * (i + 1), i, dtype=np.uint8) for i in range(40)}

    mc.save(tmp_path, odd, step=2)

    found = mc.load(tmp_path)
    assert all(np.array_equal(found[name], value) for name, value in odd.items())
    assert [health.ok for health in mc.verify(tmp_path)] == [True, True]
