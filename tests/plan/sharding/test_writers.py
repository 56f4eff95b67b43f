"""Which ranks have written a box is known without asking them, and never one too few is named."""

from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.manifest import HeldRegion, Layout, Placement
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.plan.sharding.share_out import PlannedArray, share_out
from model_checkpoint.plan.sharding.writers import writers

LAYOUTS = [
    Layout(mesh=(6,), ranks=tuple(range(6)), placements=(Placement(0),)),
    Layout(mesh=(6,), ranks=tuple(range(6)), placements=(Placement(),)),
    Layout(mesh=(2, 3), ranks=tuple(range(6)), placements=(Placement(), Placement(0))),
    Layout(mesh=(3, 2), ranks=(5, 4, 3, 2, 1, 0), placements=(Placement(1), Placement())),
    Layout(regions=(HeldRegion((0, 0), (4, 4096), (1, 2, 5)), HeldRegion((4, 0), (4, 4096), (0,)))),
]


@st.composite
def planned(draw):
    numbers = draw(st.lists(st.integers(0, len(LAYOUTS) - 1), min_size=1, max_size=12))
    sides = st.sampled_from([1, 2, 7, 600, 4096])
    return [
        PlannedArray((8, 4096) if LAYOUTS[n].regions else (draw(sides), draw(sides)), draw(st.sampled_from([1, 4])), n)
        for n in numbers
    ]


@given(planned(), st.data())
@settings(max_examples=60, deadline=None)
def test_every_rank_that_wrote_of_a_box_is_among_the_writers(arrays, data):
    number = data.draw(st.integers(0, len(arrays) - 1))
    rows, columns = arrays[number].shape
    first = data.draw(st.integers(0, rows - 1))
    box = ArrayBox((first, 0), (data.draw(st.integers(1, rows - first)), columns))

    named = writers(arrays, LAYOUTS, {number: [box]})

    for rank in range(6):
        mine = [share.box for share in share_out(arrays, LAYOUTS, rank) if share.array == number]
        assert rank in named or not any(box.common(one) for one in mine)


def test_a_rank_that_loads_what_it_saved_needs_no_other():
    arrays = [PlannedArray((6, 8), 4, 0)] * 5

    assert writers(arrays, LAYOUTS, {i: [ArrayBox((2, 0), (1, 8))] for i in range(5)}) == {2}


def test_of_many_that_hold_the_same_only_those_that_wrote_it_are_named():
    arrays = [PlannedArray((8, 8), 4, 1)] * 6
    wrote = {rank for rank in range(6) if any(share.array == 0 for share in share_out(arrays, LAYOUTS, rank))}

    named = writers(arrays, LAYOUTS, {0: [ArrayBox((0, 0), (8, 8))]})

    assert named == wrote
    assert len(named) < 6
