"""Who writes what: everything once, by someone who has it, and all about as much."""

import time
import tracemalloc
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.manifest import HeldRegion, Layout, Placement
from model_checkpoint.plan.sharding import tiling
from model_checkpoint.plan.sharding.holders import held_boxes, replicated
from model_checkpoint.plan.sharding.loads import level
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.plan.sharding.share_out import PlannedArray, planned_groups, share_out
from model_checkpoint.plan.sharding.tiling import covers, tiles

MIB = 1 << 20
LAYOUTS = [
    replicated(range(4)),
    replicated([2]),
    replicated([1, 3]),
    Layout(mesh=(4,), ranks=(0, 1, 2, 3), placements=(Placement(0),)),
    Layout(mesh=(2, 2), ranks=(0, 1, 2, 3), placements=(Placement(), Placement(0))),
    Layout(mesh=(2, 2), ranks=(3, 2, 1, 0), placements=(Placement(1), Placement())),
    Layout(mesh=(2, 2), ranks=(0, 1, 2, 3), placements=(Placement(0, 2), Placement(0))),
    Layout(mesh=(2, 2), ranks=(0, 1, 2, 3), placements=(Placement(0, 2), Placement(0)), nested=True),
]
shapes = st.one_of(
    st.just(()),
    st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple),
    st.tuples(st.integers(1, 6), st.integers(1, 3 * MIB)),
)


@given(st.lists(st.tuples(shapes, st.sampled_from([1, 2, 4]), st.integers(0, len(LAYOUTS) - 1)), max_size=12))
@settings(max_examples=200, deadline=None)
def test_every_element_is_written_once_by_a_rank_that_has_it(rows):
    arrays = [
        PlannedArray(shape, item, layout if shape else 0)  # a scalar cannot be cut
        for shape, item, layout in rows
        if len(shape) > 1 or layout != 5 or not shape
    ]
    written = {number: [] for number in range(len(arrays))}

    for rank in range(4):
        for share in share_out(arrays, LAYOUTS, rank):
            array = arrays[share.array]
            held = held_boxes(array.shape, LAYOUTS[array.layout], rank)
            inside = [one for one in held if one.box.common(share.box) == share.box]
            assert len(inside) == 1
            gap = [a - b for a, b in zip(share.box.offsets, inside[0].box.offsets, strict=True)]
            assert share.local == tuple(a + b for a, b in zip(inside[0].local, gap, strict=True))
            written[share.array].append(share.box)

    for number, boxes in written.items():
        assert tiles(arrays[number].shape, boxes)


def test_regions_held_by_several_are_shared_and_by_one_are_its_own():
    regions = (HeldRegion((0, 0), (4, MIB), (0, 1)), HeldRegion((4, 0), (2, MIB), (1,)))
    arrays = [PlannedArray((6, MIB), 1, 0)]

    shares = [share_out(arrays, [Layout(regions=regions)], rank) for rank in (0, 1)]

    assert tiles((6, MIB), [one.box for some in shares for one in some])
    assert [sum(one.box.elements for one in some) for some in shares] == [3 * MIB, 3 * MIB]
    assert {one.part for one in shares[1]} == {0, 1}


@pytest.mark.parametrize(
    ("shape", "unit"),
    [
        ((1, 7, 300_000), 300_000),
        ((7, 300_000), 300_000),
        ((2, 600_000), 600_000),
        ((5 * MIB,), 1),
        ((3, 2 * MIB), MIB),
    ],
)
def test_a_large_array_is_cut_between_rows_and_within_one_only_where_it_is_long(shape, unit):
    arrays, layouts = [PlannedArray(shape, 1, 0)], [replicated(range(2))]

    shares = [[one.box for one in share_out(arrays, layouts, rank)] for rank in range(2)]

    written = [sum(box.elements for box in boxes) for boxes in shares]
    assert all(size and size % unit == 0 for size in written)
    assert max(written) - min(written) <= 2 * unit
    assert tiles(shape, [box for boxes in shares for box in boxes])


def test_a_small_array_is_never_cut():
    shares = [share_out([PlannedArray((4, MIB // 4), 1, 0)], [replicated(range(2))], rank) for rank in range(2)]

    assert sorted(len(one) for one in shares) == [0, 1]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9), st.integers(0, 300))
def test_what_is_divided_is_level_as_far_as_it_goes(loads, nbytes):
    loads = np.array(loads)

    shares = level(loads, nbytes)

    assert int(shares.sum()) == nbytes
    assert (shares >= 0).all()
    got = loads + shares
    assert all(got[i] <= got.min() + 1 for i in range(len(loads)) if shares[i])


def test_replicas_are_balanced_against_what_only_one_rank_has():
    """Rank 0 alone has 8 MiB, so the 24 MiB that all four hold go mostly to the others."""
    arrays = [PlannedArray((8 * MIB,), 1, 1), PlannedArray((24 * MIB,), 1, 0)]
    layouts = [replicated(range(4)), replicated([0])]

    written = [
        sum(share.box.elements for share in share_out(arrays, layouts, rank) if share.array == 1) for rank in range(4)
    ]

    assert written == [0, 8 * MIB, 8 * MIB, 8 * MIB]


def hsdp(world, count):
    """Arrays of as many shapes on a square mesh, small replicated ones among them: the hardest to count."""
    side = int(world**0.5)
    layouts = [
        replicated(range(world)),
        Layout(mesh=(side, side), ranks=tuple(range(world)), placements=(Placement(), Placement(0))),
        Layout(mesh=(world,), ranks=tuple(range(world)), placements=(Placement(0),)),
    ]
    sides = np.random.default_rng(0).integers(256, 8192, count)
    arrays = [PlannedArray((int(side), 1024), 4, 1 + number % 2) for number, side in enumerate(sides)]
    arrays[::10] = [PlannedArray((int(side),), 4, 0) for side in sides[::10]]
    return arrays, layouts


def planned_bytes(arrays, layouts, world):
    """How many bytes the plan wants each rank to write."""
    loads = np.zeros(world, int)
    for group, shares in planned_groups(arrays, layouts):
        loads[group.ranks] += shares
    return loads


def cpu_of(arrays, layouts, rank):
    began = time.process_time()
    share_out(arrays, layouts, rank)
    return time.process_time() - began


def peak_of(arrays, layouts, rank):
    tracemalloc.start()
    share_out(arrays, layouts, rank)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_all_ranks_are_to_write_about_as_much_and_do():
    arrays, layouts = hsdp(16, 200)

    planned = planned_bytes(arrays, layouts, 16)

    assert sum(prod(array.shape) * array.itemsize for array in arrays) == planned.sum()
    assert planned.max() <= 1.01 * planned.mean()
    for rank in range(16):
        wrote = sum(share.box.elements * arrays[share.array].itemsize for share in share_out(arrays, layouts, rank))
        assert abs(wrote - planned[rank]) <= 0.05 * planned[rank]


@pytest.mark.slow
def test_four_thousand_ranks_and_a_hundred_thousand_arrays_are_planned_in_seconds():
    """Told as ratios: `python -m bench ranks` prints the seconds."""
    arrays, layouts = hsdp(4096, 100_000)
    mine, planned = share_out(arrays, layouts, 1234), planned_bytes(arrays, layouts, 4096)
    assert planned.max() <= 1.05 * planned.mean()
    wrote = sum(share.box.elements * arrays[share.array].itemsize for share in mine)
    assert abs(wrote - planned[1234]) <= 0.05 * planned[1234]
    assert sum(prod(array.shape) * array.itemsize for array in arrays) == planned.sum()

    worlds = {world: hsdp(world, 20_000) for world in (64, 1024, 4096)}
    cost = {world: min(cpu_of(*case, world // 3) for _ in range(3)) for world, case in worlds.items()}
    assert cost[4096] < 8 * cost[64]  # for 64 times as many ranks
    assert cpu_of(arrays, layouts, 1234) < 15 * cost[4096]  # for five times as many arrays
    peak = {world: peak_of(*case, world // 3) for world, case in worlds.items()}
    assert peak[4096] < 1.5 * peak[1024] < 100 * MIB  # flat, however many ranks there are


@given(st.lists(st.integers(0, 40), min_size=18, max_size=40, unique=True), st.data())
@settings(max_examples=50, deadline=None)
def test_many_boxes_tile_unless_one_is_moved(cuts, data):
    edges = [0, *sorted(cut + 1 for cut in cuts), 50]
    boxes = [ArrayBox((start, 0), (stop - start, 3)) for start, stop in pairwise(edges)]
    moved = data.draw(st.integers(1, len(boxes) - 1))
    odd = [*boxes[:moved], ArrayBox((boxes[moved].offsets[0] - 1, 0), boxes[moved].sizes), *boxes[moved + 1 :]]

    assert tiles((50, 3), boxes)
    assert not tiles((50, 3), odd)


def test_boxes_that_overlap_or_leave_a_hole_do_not_tile():
    assert tiles((), [ArrayBox((), ())])
    assert not tiles((), [ArrayBox((), ())] * 2)
    assert not tiles((4, 2), [ArrayBox((0, 0), (2, 2)), ArrayBox((1, 0), (2, 2))])
    assert not tiles((4,), [ArrayBox((0,), (5,))])
    assert not tiles((4,), [ArrayBox((2,), (4,))])
    assert not tiles((4,), [ArrayBox((0, 0), (2, 2))])
    assert tiles((0, 3), [])


def test_boxes_are_compared_a_few_at_a_time_where_there_are_many(monkeypatch):
    boxes = [ArrayBox((at,), (1,)) for at in range(40)]
    for at_once in (1, 39, 40, 100):
        monkeypatch.setattr(tiling, "_AT_ONCE", at_once)
        assert tiles((40,), boxes)
        assert not tiles((40,), [*boxes[:-1], ArrayBox((3,), (1,))])


def test_a_box_is_covered_by_pieces_that_leave_no_hole_and_repeat_nothing():
    box, left, right = ArrayBox((1, 0), (4, 3)), ArrayBox((0, 0), (3, 5)), ArrayBox((3, 0), (2, 3))

    assert covers(box, [left, right])
    assert not covers(box, [left])
    assert not covers(box, [left, ArrayBox((2, 0), (3, 3))])
    assert not covers(box, [left, right, ArrayBox((3, 2), (1, 1))])
