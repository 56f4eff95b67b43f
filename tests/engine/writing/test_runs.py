"""Runs: chunks on their way to a file reach it whole, whatever their order and wherever they end."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_checkpoint.engine.common.aligned_memory import PAGE
from model_checkpoint.engine.common.pages import new_slab
from model_checkpoint.engine.writing.shared_pages import SharedPages
from model_checkpoint.engine.writing.slabs import FileJob, _edge_parts, copy_chunk, plan_runs, put_run, slab_bytes
from model_checkpoint.format import Tensor, digest_chunks, lay_out
from model_checkpoint.options import MIB

CHUNK = 3 * PAGE


class Array:
    """A source of bytes that lie in order."""

    def __init__(self, nbytes, seed):
        self.data = np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)
        self.nbytes = nbytes

    def window(self, start, stop):
        return self.data[start:stop].data


@dataclass
class Medium:
    """A file that takes each byte once, and only in whole pages."""

    alignment: int
    data: bytearray = field(default_factory=bytearray)
    writes: list = field(default_factory=list)
    sealed: bool = False

    def write(self, offset, data):
        assert offset % self.alignment == len(data) % self.alignment == 0
        assert not any(a < offset + len(data) and offset < b for a, b in self.writes)
        self.writes.append((offset, offset + len(data)))
        self.data[len(self.data) :] = bytes(max(0, offset + len(data) - len(self.data)))
        self.data[offset : offset + len(data)] = data

    def seal(self, size=None):
        assert not self.sealed
        self.sealed = True


def file_of(sizes, chunk=CHUNK):
    sources = [Array(n, i) for i, n in enumerate(sizes)]
    tensors = [Tensor(f"t{i}", "U8", (n,), n, 1) for i, n in enumerate(sizes)]
    layout = lay_out(tensors, metadata={}, chunk_bytes=chunk)
    return FileJob(layout, [sources[i] for i in layout.order])


def written(job, alignment, order):
    """Put every run of a file in some order; return the medium."""
    job.writer = Medium(alignment)
    runs = plan_runs([job], 2 * CHUNK)
    slab = new_slab(slab_bytes(runs))
    slab[:] = 0xEE  # what an earlier run left
    for run in order(runs):
        copy_chunk(job, list(run.rooms(slab)))
        put_run(run, slab)
    return job.writer


@given(
    sizes=st.lists(st.integers(0, 3 * CHUNK) | st.integers(0, 40), max_size=12),
    alignment=st.sampled_from([1, 512, PAGE]),
    seed=st.integers(0, 1 << 16),
)
def test_runs_in_any_order_make_the_same_file_and_write_no_byte_twice(sizes, alignment, seed):
    job = file_of(sizes)

    medium = written(job, alignment, lambda runs: random.Random(seed).sample(runs, len(runs)))

    whole = job.layout.header + b"".join(source.data.tobytes() for source in job.sources)
    size = job.layout.size
    assert bytes(medium.data[:size]) == whole.ljust(size, b"\0")
    assert not any(medium.data[size:])
    assert medium.sealed
    bounds = zip([0, *job.layout.ends], job.layout.ends, strict=False)
    assert job.digests == digest_chunks([memoryview(medium.data)[a:b] for a, b in bounds])


def test_a_shared_page_costs_no_write_of_its_own():
    job = file_of([CHUNK + 1] * 20)

    medium = written(job, PAGE, lambda runs: runs)

    assert len(medium.writes) <= len(plan_runs([job], 2 * CHUNK))


def test_a_page_is_complete_once_all_its_bytes_that_the_file_has_are_there():
    edges, room = SharedPages(PAGE + 10), np.full(PAGE, 7, dtype=np.uint8)

    first = edges.complete(PAGE, room, slice(4, 10))
    second = edges.complete(PAGE, room, slice(0, 4))

    assert (first, second) == (False, True)
    assert room.tolist() == [7] * 10 + [0] * (PAGE - 10)


@given(
    sizes=st.lists(st.lists(st.integers(0, 40 * CHUNK), max_size=6), min_size=1, max_size=3),
    hands=st.none() | st.integers(1, 8),
)
def test_runs_cover_every_chunk_once_in_file_order_and_fit_a_slab(sizes, hands):
    jobs = [file_of(one) for one in sizes]

    runs = plan_runs(jobs, 8 * CHUNK, hands=hands)

    for job in jobs:
        own = [run for run in runs if run.job is job]
        assert [chunk for run in own for chunk in range(run.first, run.stop)] == list(range(len(job.layout.ends)))
        assert job.open_runs == len(own)
    assert all(run.end - run.begin <= 8 * CHUNK or run.stop - run.first == 1 for run in runs)


def test_runs_are_short_at_both_ends_so_that_the_medium_starts_soon_and_no_hand_is_left_alone():
    job = file_of([4 * MIB] * 100, chunk=4 * MIB)

    sizes = [run.end - run.begin for run in plan_runs([job], 24 * MIB, hands=6)]

    assert max(sizes[:2]) <= 4 * MIB
    assert max(sizes) == 24 * MIB
    assert max(sizes[-6:]) <= 12 * MIB


@pytest.mark.parametrize("nbytes", [1, PAGE, 2 * MIB - 1, 2 * MIB, 5 * MIB + 1])
def test_a_slab_is_aligned_empty_and_as_long_as_asked(nbytes):
    slab = new_slab(nbytes)

    assert slab.nbytes == nbytes
    assert slab.ctypes.data % (2 * MIB if nbytes >= 2 * MIB else PAGE) == 0
    assert not slab.any()


@pytest.mark.parametrize(
    ("begin", "end", "parts"),
    [
        (100, 200, [(100, 200)]),
        (100, 4096 + 50, [(100, 4096), (4096, 4096 + 50)]),  # two pages, neither of them whole
        (100, 4096, [(100, 4096)]),
        (4096, 4096 + 50, [(4096, 4096 + 50)]),
        (4096, 8192, []),
        (100, 3 * 4096 + 7, [(100, 4096), (3 * 4096, 3 * 4096 + 7)]),
    ],
)
def test_the_parts_of_a_run_outside_its_whole_pages_lie_each_in_one_page(begin, end, parts):
    assert _edge_parts(begin, end, -(-begin // 4096) * 4096, end // 4096 * 4096) == parts
