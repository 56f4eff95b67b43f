"""What each rank has, what all make of it, and how a layout is meant: found once, kept while it holds, told apart."""

import msgspec
import numpy as np
import pytest

from model_checkpoint import tree
from model_checkpoint.engine.ranks.layout_inference import agreed, misfits, read_as, reading_key
from model_checkpoint.engine.ranks.pooling import (
    differing,
    own_arrays,
    pool_parts,
    pool_signs,
    pool_tree,
    rank_state,
    settled,
)
from model_checkpoint.engine.ranks.structure import ArraySign, renumbered, structure_of
from model_checkpoint.errors import StructureMismatch
from model_checkpoint.manifest import HeldRegion, Layout, Placement


def structure(state, rank=0, world=2):
    return structure_of(tree.flatten(state), rank, world)


def word(spec=(), nested=()):
    return {"misfits": {"spec": list(spec), "nested": list(nested)}}


# --- readings --------------------------------------------------------------------------------------------------------

PLAIN = Layout(mesh=(2,), ranks=(0, 1), placements=(Placement(0),))
STRIDED = Layout(mesh=(3, 2), ranks=tuple(range(6)), placements=(Placement(0, split=2), Placement(0)))


def test_a_plain_layout_that_does_not_fit_fits_no_reading():
    key = reading_key((5, 2), PLAIN)

    assert misfits([((5, 2), PLAIN, [(3, 2)])], 0) == {"spec": [], "nested": []}
    assert misfits([((5, 2), PLAIN, [(2, 2)])], 1) == {"spec": [], "nested": []}
    assert misfits([((5, 2), PLAIN, [(2, 2)])], 0) == {"spec": [key], "nested": [key]}


def test_a_strided_layout_is_read_as_it_fits():
    """Seven rows on three by two: FSDP2 gives the last pair no row and one, its spec one and none."""
    key = reading_key((7, 5), STRIDED)

    def odd(rank, rows):
        return misfits([((7, 5), STRIDED, [(rows, 5)])], rank)

    assert (odd(4, 0), odd(5, 1)) == ({"spec": [key], "nested": []},) * 2
    assert (odd(4, 1), odd(5, 0)) == ({"spec": [], "nested": [key]},) * 2
    assert (odd(0, 2), odd(1, 1)) == ({"spec": [], "nested": []},) * 2
    assert odd(0, 3) == {"spec": [key], "nested": [key]}


def test_what_was_marked_or_is_of_other_ranks_has_no_reading():
    marked = Layout(regions=(HeldRegion((0, 0), (1, 2), (0,)),))

    assert misfits([((5, 2), marked, [(9, 9)])], 0) == {"spec": [], "nested": []}
    assert misfits([((5, 2), PLAIN, [(9, 9)])], 7) == {"spec": [], "nested": []}
    assert misfits([((5, 2), Layout(ranks=(0,)), [(9, 9)])], 0) == {"spec": [], "nested": []}


def test_ranks_agree_on_the_reading_that_fits_all_of_them():
    assert agreed([word(), word()]) == []
    assert agreed([word(spec=["b"]), word(spec=["a", "b"], nested=["c"])]) == ["a", "b"]
    with pytest.raises(StructureMismatch, match=r"laid out as b .* is on ranks \[0, 2\] of another shape"):
        agreed([word(spec=["b"]), word(), word(nested=["b"])])


def test_only_the_layouts_agreed_on_are_read_as_nested():
    key = reading_key((7, 5), STRIDED)

    assert read_as((7, 5), STRIDED, [key]).nested
    assert read_as((7, 5), STRIDED, []) is STRIDED
    assert read_as((8, 5), STRIDED, [key]) is STRIDED
    marked = Layout(regions=(HeldRegion((0,), (1,), (0,)),))
    assert read_as((7, 5), marked, [reading_key((7, 5), marked)]) is marked


# --- structures ------------------------------------------------------------------------------------------------------


def test_only_the_last_four_structures_are_kept():
    def state(name):
        return {f"of_{name}": np.zeros(3)}

    first = structure(state("a"))
    assert structure(state("a")).found is first.found
    for name in "bcd":
        structure(state(name))
    assert structure(state("a")).found is first.found  # and it is the newest now
    for name in "efg":
        structure(state(name))
    assert structure(state("a")).found is first.found
    for name in "hijk":
        structure(state(name))
    assert structure(state("a")).found is not first.found


def test_ranks_and_worlds_are_kept_apart():
    found = [structure({"w": np.zeros(3)}, rank, world).found for rank, world in ((0, 2), (1, 2), (0, 3))]

    assert len({id(one) for one in found}) == 3


def test_what_was_found_is_asked_for_once():
    one, asked = structure({"once": np.zeros(3)}), []

    assert [one.once("key", lambda: asked.append(1) or "made") for _ in range(3)] == ["made"] * 3
    assert asked == [1]


def test_a_part_that_moved_among_arrays_is_planned_anew():
    first = structure({"w": np.zeros(3), "n": 1})

    assert structure({"w": np.zeros(3), "n": 2}).found is first.found
    assert structure({"w": 1, "n": np.zeros(3)}).found is not first.found


def test_digests_tell_of_bytes_where_they_are_known():
    one = structure({"w": np.zeros(3), "n": 1})
    number = one.parts["w"].arrays[0]

    plain, first, other = one.digests({}), one.digests({number: "a"}), one.digests({number: "b"})

    assert plain["n"] == first["n"] == other["n"] == one.parts["n"].digest
    assert len({plain["w"], first["w"], other["w"]}) == 3
    assert plain["w"] == one.parts["w"].digest


def test_the_same_part_has_the_same_digest_however_a_rank_counts_its_arrays():
    here, there = structure({"w": np.zeros(3), "v": np.zeros(2)}), structure({"v": np.zeros(2), "w": np.zeros(3)})

    assert {name: part.digest for name, part in here.parts.items()} == {n: p.digest for n, p in there.parts.items()}


def test_a_tree_is_renumbered_in_a_copy():
    node = ["d", ["x", ["a", 0], "l", ["l", [["a", 1], 5]]]]
    before = msgspec.json.encode(node)

    assert renumbered(node, {0: 7, 1: 3}) == ["d", ["x", ["a", 7], "l", ["l", [["a", 3], 5]]]]
    assert renumbered(node, {0: 0, 1: 1}) is node
    assert renumbered(5, {}) == 5
    assert msgspec.json.encode(node) == before


# --- pooling ---------------------------------------------------------------------------------------------------------


def test_parts_differ_where_digests_do_or_nobody_can_tell():
    assert differing([{"a": "1", "b": "2"}, {"a": "1", "b": "3"}]) == ["b"]
    assert differing([{"a": "1"}, {"a": "1", "c": "2"}]) == ["c"]
    assert differing([{"a": ""}, {"a": ""}]) == ["a"]
    assert differing([{"a": "1"}, {"a": "1"}]) == []


def pooled(states, contents):
    """All ranks' states as one: parts that differ, all arrays, the tree, and which of its own each rank has where."""
    world = len(states)
    ranks = [structure(state, rank, world) for rank, state in enumerate(states)]
    mine = [rank_state(one, content) for one, content in zip(ranks, contents, strict=True)]
    names = differing([one.digests(content) for one, content in zip(ranks, contents, strict=True)])
    told = None
    if names:
        details = [msgspec.json.decode(msgspec.json.encode(one.told(names))) for one in mine]
        told = msgspec.json.decode(
            msgspec.json.encode(pool_parts(details, names, settled(ranks[0], names, world).known))
        )
    signs = [pool_signs(one, names, told, world) for one in ranks]
    assert all(one == signs[0] for one in signs)
    own = [own_arrays(one, signs[0], rank) for rank, one in enumerate(ranks)]
    return names, signs[0], pool_tree(ranks[0], names, told, world), own


def test_what_all_have_alike_is_one_array_of_all():
    names, signs, node, own = pooled([{"w": np.zeros(3), "n": 1}] * 3, [{0: "x"}] * 3)

    assert names == []
    assert [(sign.name, sign.layout.ranks) for sign in signs] == [("w", (0, 1, 2))]
    assert node == ["d", ["w", ["a", 0], "n", 1]]
    assert own == [{0: 0}] * 3


def test_what_differs_is_held_once_for_each_content_and_belongs_to_its_ranks():
    states = [{"same": np.zeros(2), "own": np.zeros(3)}] * 3
    names, signs, node, own = pooled(states, [{0: "s", 1: "x"}, {0: "s", 1: "y"}, {0: "s", 1: "x"}])

    assert names == ["own"]
    assert [(sign.name, sign.layout.ranks) for sign in signs] == [("same", (0, 1, 2)), ("own", (0, 2)), ("own", (1,))]
    assert node == ["d", ["same", ["a", 0], "own", ["per", [["a", 1], ["a", 2]], [0, 1, 0]]]]
    assert own == [{0: 0, 1: 1}, {0: 0, 2: 1}, {0: 0, 1: 1}]


def test_a_part_that_one_rank_lacks_is_of_the_others():
    names, signs, node, own = pooled([{"a": 1}, {"a": 1, "w": np.zeros(3)}], [{}, {0: "x"}])

    assert names == ["w"]
    assert [(sign.name, sign.layout.ranks) for sign in signs] == [("w", (1,))]
    assert node == ["d", ["a", 1, "w", ["per", [["a", 0]], [-1, 0]]]]
    assert own == [{}, {0: 0}]


def test_a_state_that_is_no_dict_is_one_part():
    assert pooled([[1, 2], [1, 3]], [{}, {}])[2] == ["l", [1, ["per", [2, 3], [0, 1]]]]
    assert pooled([5, 5], [{}, {}])[2] == 5


def on_meshes(*held, names=("shard",)):
    """What two meshes of two ranks are pooled to, when each of the four ranks holds rows with such a digest."""
    details = []
    for rank, digest in enumerate(held):
        ranks = (0, 1) if rank < 2 else (2, 3)
        layout = Layout(mesh=(2,), ranks=ranks, placements=(Placement(0),), names=names)
        sign = ArraySign("w", "numpy", "float64", (4, 2), "F64", None, 8, None, False, digest=digest, layout=layout)
        details.append({"parts": {"w": ["a", 0]}, "signs": [msgspec.to_builtins(sign)], "of_rank_zero": []})
    found = pool_parts(details, ["w"], {"known before": 0})
    return found["parts"]["w"], [sign.layout for sign in found["signs"]], [sign.digest for sign in found["signs"]]


@pytest.mark.parametrize("names", [("shard",), ()])
def test_meshes_that_hold_the_same_are_copies_of_each_other(names):
    node, layouts, digests = on_meshes("x", "y", "x", "y", names=names)

    assert node == ["a", 1]
    assert layouts == [
        Layout(
            mesh=(2, 2),
            ranks=(0, 1, 2, 3),
            placements=(Placement(), Placement(0)),
            names=("", "shard") if names else (),
        )
    ]
    assert digests == [""]


@pytest.mark.parametrize("held", [("x", "y", "x", "z"), ("", "", "", ""), ("x", "", "x", "")])
def test_meshes_that_hold_something_else_or_cannot_tell_have_arrays_of_their_own(held):
    node, layouts, _ = on_meshes(*held)

    assert node == ["per", [["a", 1], ["a", 2]], [0, 0, 1, 1]]
    assert [(layout.mesh, layout.ranks) for layout in layouts] == [((2,), (0, 1)), ((2,), (2, 3))]
