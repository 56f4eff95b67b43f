"""What ranks of one machine want of a cold file, too little to be shown, goes through the page cache."""

import numpy as np
from tests.distributed.reading.cold_reads import MIB, ColdReads
from tests.distributed.test_save_on_ranks import marked
from tests.distributed.threads import all_well, on_ranks, save_all

import model_checkpoint as mc
from model_checkpoint.storage import LocalStore

ROWS = (np.arange(48 * MIB) % 251).astype(np.uint8).reshape(24, 2 * MIB)


def load_cold(root, live, coordinator=None):
    calls = ColdReads()
    mc.load(LocalStore(root, calls=calls), into=live, coordinator=coordinator)
    return calls.reads


def test_who_loads_alone_reads_a_cold_file_around_the_page_cache(tmp_path):
    mc.save(tmp_path, {"w": ROWS}, step=1)
    live = {"w": np.zeros_like(ROWS)}

    reads = load_cold(tmp_path, live)

    assert {direct for direct, _ in reads} == {True}
    assert np.array_equal(live["w"], ROWS)


def test_what_all_ranks_want_goes_through_the_page_cache_and_each_begins_elsewhere(tmp_path):
    mc.save(tmp_path, {"w": ROWS}, step=1)

    def load(coordinator):
        live = {"w": np.zeros_like(ROWS)}
        reads = load_cold(tmp_path, live, coordinator)
        return reads, np.array_equal(live["w"], ROWS)

    (first, well), (second, also_well) = all_well(on_ranks(2, load))

    assert (well, also_well) == (True, True)
    assert {direct for direct, _ in first + second} == {False}
    assert min(offset for _, offset in second[:2]) >= 16 * MIB > max(offset for _, offset in first[:2])


def test_ranks_that_cut_every_row_share_what_they_read_and_those_that_cut_none_do_not(tmp_path):
    save_all(tmp_path, 2, lambda rank: {"w": marked(ROWS, (12 * rank, 0), (12, 2 * MIB))}, step=1)

    def load(offsets, sizes):
        def work(coordinator):
            box = tuple(coordinator.rank * one for one in offsets), sizes
            live = {"w": marked(np.zeros_like(ROWS), *box)}
            reads = load_cold(tmp_path, live, coordinator)
            window = tuple(slice(at, at + size) for at, size in zip(*box, strict=True))
            return reads, np.array_equal(live["w"].array, ROWS[window])

        found = all_well(on_ranks(2, work))
        assert all(well for _, well in found)
        return {direct for reads, _ in found for direct, _ in reads}

    assert load((0, MIB), (24, MIB)) == {False}
    assert load((12, 0), (12, 2 * MIB)) == {True}
