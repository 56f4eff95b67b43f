"""Which boxes a rank holds, against the splitter of torch and against brute force."""

import itertools
from math import prod

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from model_checkpoint.manifest import HeldRegion, Layout, Placement
from model_checkpoint.plan.sharding.holders import HeldBox, held_boxes, holders, local_shape, renamed_ranks
from model_checkpoint.plan.sharding.loads import group_ranks, held_bytes
from model_checkpoint.plan.sharding.regions import ArrayBox, byte_runs, run_boxes

MESHES = [(1,), (2,), (3,), (5,), (8,), (2, 2), (2, 3), (3, 2), (4, 2), (2, 2, 2)]


@st.composite
def laid_out(draw):
    """A shape, a mesh of ranks, and what each dimension of the mesh does."""
    mesh = draw(st.sampled_from(MESHES))
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    dims = st.integers(0, len(shape) - 1)
    one = st.one_of(
        st.just(Placement()), st.builds(Placement, dims), st.builds(Placement, dims, split=st.integers(1, 4))
    )
    placements = tuple(draw(st.lists(one, min_size=len(mesh), max_size=len(mesh))))
    ranks = tuple(draw(st.permutations(range(prod(mesh)))))
    return shape, Layout(mesh=mesh, ranks=ranks, placements=placements)


def torch_placement(placement):
    if placement.replicated:
        return Replicate()
    return _StridedShard(placement.dim, split_factor=placement.split) if placement.split else Shard(placement.dim)


def split_by_torch(whole, layout, rank):
    """What torch's own splitter gives a rank, placement by placement from the left."""
    position = layout.ranks.index(rank)
    for axis, side in enumerate(layout.mesh):
        at = position // prod(layout.mesh[axis + 1 :]) % side
        placement = torch_placement(layout.placements[axis])
        if not placement.is_replicate():
            pieces, _ = placement._split_tensor(whole, side, with_padding=False, contiguous=True)
            whole = pieces[at]
    return whole


@given(laid_out())
@settings(max_examples=300, deadline=None)
def test_boxes_are_what_torch_gives_each_rank_in_its_order(case):
    shape, layout = case
    whole = torch.arange(prod(shape)).reshape(shape)
    for rank in layout.ranks:
        local = split_by_torch(whole, layout, rank)

        boxes = held_boxes(shape, layout, rank)

        assert local_shape(shape, layout, rank) == tuple(local.shape)
        assert sum(held.box.elements for held in boxes) == local.numel()
        for held in boxes:
            here = ArrayBox(held.local, held.box.sizes)
            assert torch.equal(local[here.slices()], whole[held.box.slices()])


@given(laid_out())
@settings(max_examples=300, deadline=None)
def test_every_element_is_held_by_one_group_of_ranks(case):
    shape, layout = case
    held_by = {}
    for rank in layout.ranks:
        for held in held_boxes(shape, layout, rank):
            for element in itertools.product(*(range(s.start, s.stop) for s in held.box.slices())):
                held_by.setdefault(element, set()).add(rank)

    assert set(held_by) == set(itertools.product(*map(range, shape)))
    for rank in layout.ranks:
        assert all(set(holders(layout, rank)) == group for group in held_by.values() if rank in group)


@given(laid_out(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_bytes_held_are_counted_without_walking_the_boxes(case, nested):
    shape, plain = case
    layout = Layout(mesh=plain.mesh, ranks=plain.ranks, placements=plain.placements, nested=nested)

    counted = held_bytes(layout, [(shape, 4), (shape, 4), (shape[::-1] if len(set(shape)) == 1 else shape, 2)])

    for group, nbytes in zip(group_ranks(layout), counted, strict=True):
        for rank in group:
            assert sum(held.box.elements for held in held_boxes(shape, layout, int(rank))) * 10 == nbytes


def test_a_layout_is_the_same_by_other_names_of_its_ranks():
    boxes = (HeldRegion((0,), (4,), (7, 5)),)
    layout = Layout(mesh=(2,), ranks=(5, 7), placements=(Placement(0),), names=("dp",))

    assert renamed_ranks(layout, {5: 1, 7: 0}) == Layout((2,), (1, 0), (Placement(0),), names=("dp",))
    assert renamed_ranks(Layout(regions=boxes), {5: 0, 7: 1}) == Layout(regions=(HeldRegion((0,), (4,), (1, 0)),))
    assert renamed_ranks(layout, {5: 5, 7: 7}) is layout


def test_a_region_lies_at_the_start_of_its_own_part():
    regions = (HeldRegion((0, 0), (2, 3), (0, 1)), HeldRegion((2, 0), (4, 3), (1,)))

    assert held_boxes((6, 3), Layout(regions=regions), 1) == [
        HeldBox(ArrayBox((0, 0), (2, 3)), (0, 0), 0),
        HeldBox(ArrayBox((2, 0), (4, 3)), (0, 0), 1),
    ]


def test_rows_that_touch_are_one_box():
    """The first cut leaves rows 0, 1, 4 and 5; the second takes all of them, one by one."""
    layout = Layout(mesh=(2, 2), ranks=(0, 1, 2, 3), placements=(Placement(0, 2), Placement(0, 4)))

    assert held_boxes((8,), layout, 0) == [
        HeldBox(ArrayBox((0,), (2,)), (0,)),
        HeldBox(ArrayBox((4,), (2,)), (2,)),
    ]


def test_seven_rows_of_fsdp_and_tensor_parallel_lie_where_fsdp_puts_them():
    """The spec read from the left gives row 6 to rank 4; FSDP2 cuts the tensor parallel part, so rank 5 has it."""
    spec = Layout(mesh=(3, 2), ranks=tuple(range(6)), placements=(Placement(0, 2), Placement(0)))
    nested = Layout(mesh=(3, 2), ranks=tuple(range(6)), placements=spec.placements, nested=True)

    def rows(layout, rank):
        return [row for held in held_boxes((7, 5), layout, rank) for row in range(7)[held.box.slices()[0]]]

    assert [rows(nested, rank) for rank in range(6)] == [[0, 1], [4], [2, 3], [5], [], [6]]
    assert rows(spec, 4) == [6]


@given(st.lists(st.integers(1, 6), max_size=4), st.data())
def test_a_run_of_elements_is_a_few_boxes_in_order(sizes, data):
    count = prod(sizes)
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    numbers = np.arange(count).reshape(sizes)

    boxes = list(run_boxes(sizes, start, stop))

    assert [int(n) for box in boxes for n in numbers[box.slices()].reshape(-1)] == list(range(start, stop))
    assert len(boxes) <= max(1, 2 * len(sizes) - 1)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(1, 4), st.integers(0, 40), st.data())
def test_runs_of_bytes_hold_all_of_a_box_and_no_gap_as_long_as_allowed(shape, item, gap, data):
    offsets = [data.draw(st.integers(0, side - 1)) for side in shape]
    sizes = [data.draw(st.integers(1, side - start)) for side, start in zip(shape, offsets, strict=True)]
    box = ArrayBox(tuple(offsets), tuple(sizes))
    wanted = np.zeros((*shape, item), bool)
    wanted[box.slices()] = True
    wanted = set(np.flatnonzero(wanted.reshape(-1)).tolist())

    runs = byte_runs(box, shape, item, gap=gap)

    read = {byte for start, stop in runs for byte in range(start, stop)}
    assert wanted <= read
    assert sum(stop - start for start, stop in runs) == len(read)
    if gap == 0:
        assert wanted == read
