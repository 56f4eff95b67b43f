"""Plans are pure: which file, which chunk, which checkpoint, and does it fit."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

from model_checkpoint import plan
from model_checkpoint.format import Tensor, lay_out
from model_checkpoint.manifest import Entry, FileRecord
from model_checkpoint.options import CheckpointFormat, LayoutLimits
from model_checkpoint.plan.assign import assign
from model_checkpoint.state import Leaf, LiveSpecs, Spec


@dataclass
class Blob:
    nbytes: int


def leaf(name, nbytes):
    return Leaf(name, "numpy", "uint8", (nbytes,), "U8", None, Blob(nbytes), 1)


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 60), st.integers(1, 10))
def test_files_keep_order_and_limits_and_lose_no_leaf(sizes, file_bytes, file_tensors):
    leaves = [leaf(f"t{i}", n) for i, n in enumerate(sizes)]
    limits = LayoutLimits(file_bytes=file_bytes, file_tensors=file_tensors)

    files = assign(leaves, CheckpointFormat.MULTI_SHARD, limits)

    assert [i for file in files for i in file.leaves] == list(range(len(sizes)))
    for file in files:
        assert len(file.leaves) <= file_tensors
        assert len(file.leaves) == 1 or sum(sizes[i] for i in file.leaves) <= file_bytes


def test_a_single_file_is_never_cut():
    leaves = [leaf(f"t{i}", 100) for i in range(10)]

    assert len(assign(leaves, CheckpointFormat.SINGLE_FILE, LayoutLimits(file_bytes=1))) == 1


def test_a_consolidated_model_gets_its_own_files_under_its_own_names():
    leaves = [leaf("optimizer.a", 1), leaf("model.w", 1), leaf("model.b", 1)]

    model, rest = assign(leaves, CheckpointFormat.CONSOLIDATED, LayoutLimits())

    assert (model.part, list(model.leaves), list(model.names)) == ("model", [1, 2], ["w", "b"])
    assert list(rest.names) == ["optimizer.a"]


def test_headers_stay_below_the_limit():
    leaves = [leaf("n" * 100 + str(i), 1) for i in range(1000)]
    limits = LayoutLimits(header_bytes=30_000)

    for file in assign(leaves, CheckpointFormat.MULTI_SHARD, limits):
        tensors = [Tensor(n, "U8", (1,), 1, 1) for n in file.names]
        assert len(lay_out(tensors, metadata={}, chunk_bytes=100).header) <= 30_000 + 4096


@pytest.mark.parametrize(("name", "shape", "row"), [("t", (1,), 98), ("tt", (1,) * 4, 100), ("t", (1,) * 6, 140)])
def test_a_header_is_full_when_the_most_its_rows_may_take_reaches_the_limit(name, shape, row):
    leaves = [Leaf(name, "numpy", "uint8", shape, "U8", None, Blob(1), 1)] * 4

    def tensors_per_file(limit):
        files = assign(leaves, CheckpointFormat.MULTI_SHARD, LayoutLimits(header_bytes=limit))
        return [len(file.leaves) for file in files]

    assert tensors_per_file(2 * row) == [2, 2]
    assert tensors_per_file(2 * row - 1) == [1, 1, 1, 1]
    assert tensors_per_file(row - 1) == [1, 1, 1, 1]


def test_a_file_is_full_at_its_limit_and_not_before():
    leaves = [leaf("a", 60), leaf("b", 40), leaf("c", 200), leaf("d", 0), leaf("e", 100), leaf("f", 1)]

    files = assign(leaves, CheckpointFormat.MULTI_SHARD, LayoutLimits(file_bytes=100))

    assert [list(file.names) for file in files] == [["a", "b"], ["c"], ["d", "e"], ["f"]]
    assert assign([], CheckpointFormat.MULTI_SHARD, LayoutLimits()) == []


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=20), st.data())
def test_reads_cover_exactly_the_wanted_bytes(sizes, data):
    tensors = [Tensor(f"t{i}", "U8", (n,), n, 1) for i, n in enumerate(sizes)]
    layout = lay_out(tensors, metadata={}, chunk_bytes=1000)
    places = {i: (layout.starts[p], layout.starts[p + 1]) for p, i in enumerate(layout.order)}
    entries = [Entry(f"t{i}", "numpy", "uint8", (n,), "U8", None, 0, *places[i], "") for i, n in enumerate(sizes)]
    files = [FileRecord("f", layout.size, tuple(layout.ends), "", "", "")]
    wanted = data.draw(st.sets(st.integers(0, len(sizes) - 1)))

    reads = plan.plan_reads(wanted, entries, files)

    got = {i: [] for i in wanted}
    for read in reads:
        assert (read.start, read.stop) == (layout.ends[read.chunk - 1], layout.ends[read.chunk])
        for piece in read.pieces:
            assert read.start + piece.start == entries[piece.entry].start + piece.into
            got[piece.entry].append((piece.into, piece.into + piece.length))
    for i, spans in got.items():
        covered = sorted(spans)
        assert [a for a, _ in covered] == ([0, *[b for _, b in covered[:-1]]] if covered else [])
        assert (covered[-1][1] if covered else 0) == sizes[i]


def test_only_the_asked_ranges_of_an_entry_are_read_chunk_by_chunk_and_file_by_file():
    entries = [
        Entry("b", "numpy", "uint8", (50,), "U8", None, 1, 20, 70, ""),
        Entry("a", "numpy", "uint8", (90,), "U8", None, 0, 10, 100, ""),
        Entry("unasked", "numpy", "uint8", (30,), "U8", None, 1, 70, 100, ""),
    ]
    files = [FileRecord("f", 100, (10, 40, 100), "", "", ""), FileRecord("g", 100, (20, 60, 100), "", "", "")]

    reads = plan.plan_reads([0, 1, 2], entries, files, ranges={0: [(5, 5), (30, 45)], 1: [(25, 31)]})

    assert [(read.file, read.chunk, read.start, read.stop) for read in reads] == [
        (0, 1, 10, 40),
        (0, 2, 40, 100),
        (1, 1, 20, 60),
        (1, 2, 60, 100),
    ]
    assert [read.pieces for read in reads] == [
        [plan.Piece(1, 25, 25, 5)],
        [plan.Piece(1, 30, 0, 1)],
        [plan.Piece(0, 30, 30, 10)],
        [plan.Piece(0, 40, 0, 5)],
    ]


@given(st.lists(st.tuples(st.integers(0, 89), st.integers(1, 90)), min_size=1, max_size=6))
def test_chunks_come_in_file_order_however_the_ranges_overlap(ranges):
    entries = [Entry("a", "numpy", "uint8", (90,), "U8", None, 0, 10, 100, "")]
    files = [FileRecord("f", 100, tuple(range(10, 101, 10)), "", "", "")]
    asked = [(start, min(90, start + length)) for start, length in ranges]

    reads = plan.plan_reads([0], entries, files, ranges={0: asked})

    touched = {1 + at // 10 for start, stop in asked for at in range(start, stop)}
    assert [read.chunk for read in reads] == sorted(touched)


def test_pieces_of_one_chunk_are_one_read():
    entries = [Entry(n, "numpy", "uint8", (5,), "U8", None, 0, at, at + 5, "") for n, at in (("a", 15), ("b", 10))]

    (read,) = plan.plan_reads([0, 1], entries, [FileRecord("f", 20, (10, 20), "", "", "")])

    assert read == plan.ChunkRead(0, 1, 10, 20, [plan.Piece(1, 0, 0, 5), plan.Piece(0, 0, 5, 5)])


def test_of_a_chunk_whose_parts_have_digests_only_the_wanted_parts_are_read():
    part = plan.reads.SUBCHUNK_BYTES
    ends = (10, 10 + 5 * part + 7)
    spans = {0: (10, 11), 1: (11, part + 9), 2: (10 + 3 * part, 11 + 3 * part), 3: (ends[1] - 1, ends[1])}
    entries = [Entry(str(i), "numpy", "uint8", (b - a,), "U8", None, 0, a, b, "") for i, (a, b) in spans.items()]
    files = [FileRecord("f", ends[1], ends, "", "", "", subchunks=("", "digests"))]

    reads = plan.plan_reads(range(4), entries, files, subchunks=True)

    assert [(read.chunk, read.start, read.stop) for read in reads] == [
        (1, 10, 10 + part),
        (1, 10 + 3 * part, 10 + 4 * part),
        (1, 10 + 5 * part, ends[1]),
    ]
    assert [read.pieces for read in reads] == [
        [plan.Piece(0, 0, 0, 1), plan.Piece(1, 0, 1, part - 2)],
        [plan.Piece(2, 0, 0, 1)],
        [plan.Piece(3, 0, 6, 1)],
    ]
    assert len(plan.plan_reads(range(4), entries, files)) == 1
    assert len(plan.plan_reads([0, 2], entries, [FileRecord("f", ends[1], ends, "", "", "")], subchunks=True)) == 1


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(1, 300)), min_size=1, max_size=8))
def test_runs_of_wanted_parts_are_read_once_and_touch_each_other_nowhere(bounds):
    part, size = plan.reads.SUBCHUNK_BYTES, 10 * plan.reads.SUBCHUNK_BYTES + 7
    spans = sorted({(at * part // 97, at * part // 97 + length * part // 200 + 1) for at, length in bounds})
    spans = [(start, min(stop, size)) for start, stop in spans if start < size]
    entries = [
        Entry(str(i), "numpy", "uint8", (b - a,), "U8", None, 0, 10 + a, 10 + b, "") for i, (a, b) in enumerate(spans)
    ]
    files = [FileRecord("f", 10 + size, (10, 10 + size), "", "", "", subchunks=("", "digests"))]

    reads = plan.plan_reads(range(len(entries)), entries, files, subchunks=True)

    wanted = {number for start, stop in spans for number in range(start // part, -(-stop // part))}
    got = [range((read.start - 10) // part, -(-(read.stop - 10) // part)) for read in reads]
    assert [number for run in got for number in run] == sorted(wanted)
    assert all(one.stop < other.start for one, other in pairwise(got))
    for read in reads:
        for piece in read.pieces:
            assert read.start + piece.start == entries[piece.entry].start + piece.into


@dataclass(frozen=True)
class Dated:
    step: int | None
    created: str
    metrics: dict = field(default_factory=dict, hash=False)


def test_newest_is_the_highest_step_then_the_latest_commit():
    a, b, c, d = Dated(9, "2026-01-03"), Dated(10, "2026-01-01"), Dated(10, "2026-01-02"), Dated(None, "2026-01-09")

    assert plan.rank_by_age([a, b, c, d]) == [c, b, a, d]


def test_step_zero_is_newer_than_no_step():
    first, none = Dated(0, "2026-01-01"), Dated(None, "2026-01-09")

    assert plan.rank_by_age([none, first]) == [first, none]


def test_a_report_names_every_difference_and_the_nearest_name():
    saved = [Spec("model.weight", "float32", (2,)), Spec("model.b", "float32", (2,)), Spec("model.c", "float32", ())]
    live = LiveSpecs(
        [Spec("model.weigth", "float32", (2,)), Spec("model.b", "bfloat16", (3,)), Spec("model.c", "float32", ())]
    )

    report = plan.compare(saved, live)

    assert report.missing == ["model.weigth"]
    assert report.unexpected == ["model.weight"]
    assert report.shapes == [("model.b", (2,), (3,))]
    assert report.dtypes == [("model.b", "float32", "bfloat16")]
    assert "missing: model.weigth (nearest: model.weight)" in report.render()
    assert not report.fits


def test_under_an_open_prefix_anything_saved_is_welcome():
    saved = [Spec("optimizer.state.w.exp_avg", "float32", (2,))]

    assert plan.compare(saved, LiveSpecs([], ["optimizer.state."])).fits
    assert plan.compare(saved, LiveSpecs([], [""])).fits
    assert not plan.compare(saved, LiveSpecs([], ["optimizer.state"])).fits
    assert plan.compare([], LiveSpecs([]), unmet=["optimizer"]).missing == ["optimizer"]


@given(st.data(), st.integers(1, 64))
def test_a_box_takes_what_numpy_takes(data, gap):
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=4)))
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    index = data.draw(basic_indices(shape, allow_newaxis=False, allow_ellipsis=True))

    box = plan.box_of(index, plan.Box(0, shape, array.strides))

    assert box.shape == array[index].shape
    got = np.full(box.shape, -1, np.int32)
    for at, part in plan.parts_of(box, gap):
        got[at] = np.ndarray(part.shape, np.int32, array.data, part.offset, part.strides)
    np.testing.assert_array_equal(got, array[index])


def test_a_box_is_cut_where_gaps_are_wide_and_nowhere_else():
    column = plan.box_of((slice(None), 3), plan.Box(0, (4, 100), (400, 4)))

    assert [part.box.span(4) for part in plan.parts_of(column, 400)] == [(12, 16), (412, 416), (812, 816), (1212, 1216)]
    assert [part.box.span(4) for part in plan.parts_of(column, 401)] == [(12, 1216)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), min_size=1, max_size=12))
def test_spans_are_what_is_wanted_without_a_touch_between_them(bounds):
    wanted = {byte for start, length in bounds for byte in range(start, start + length)}

    spans = plan.Spans([(start, start + length) for start, length in bounds])

    assert [byte for start, stop in spans.ranges for byte in range(start, stop)] == sorted(wanted)
    assert all(one[1] < other[0] for one, other in pairwise(spans.ranges))
    for byte in wanted:
        start, stop = spans.ranges[spans.find(byte)]
        assert start <= byte < stop


def test_spans_hold_each_byte_once():
    spans = plan.Spans([(8, 12), (0, 4), (2, 6), (6, 7)])

    assert spans.ranges == [(0, 7), (8, 12)]
    assert [spans.find(byte) for byte in (0, 6, 8, 11)] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("index", "problem"), [(9, "out of range"), ((0, 0, 0), "too many"), (None, "only whole"), (True, "only whole")]
)
def test_a_box_refuses_what_it_cannot_take(index, problem):
    with pytest.raises(IndexError, match=problem):
        plan.box_of(index, plan.Box(0, (4, 4), (16, 4)))
