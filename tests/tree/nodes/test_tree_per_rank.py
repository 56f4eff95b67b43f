"""The trees of many ranks as one: nothing of any rank is lost, and only what differs is held more than once."""

import json
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.errors import ManifestInvalid, StructureMismatch, UnsupportedType
from model_checkpoint.tree import prepare
from model_checkpoint.tree.flattening.flatten import flatten
from model_checkpoint.tree.nodes.per_rank import RankView, holds_choice, joined, view_of
from model_checkpoint.tree.nodes.rank_zero import told_once


class Pair(NamedTuple):
    """A record."""

    left: object
    right: object


class Holder:
    """An object with a state of its own."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return {"held": self.state}

    def load_state_dict(self, state):
        self.state = state["held"]


scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(allow_nan=False), st.sampled_from("abc"))
states = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(Holder, inner),
        st.dictionaries(st.sampled_from(["a", "b", "c.d", "e"]), inner, max_size=3),
        st.dictionaries(st.integers(0, 2), inner, max_size=2),
    ),
    max_leaves=8,
)


def canonical(node):
    """Dicts in order of their keys: joining keeps the order of the first rank that has a key."""
    if not isinstance(node, list) or not node:
        return node
    if node[0] in ("d", "k", "o"):
        pairs = sorted(
            ((json.dumps(k), canonical(v)) for k, v in zip(node[1][::2], node[1][1::2], strict=True)), key=str
        )
        return [node[0], pairs, *node[2:]]
    return [canonical(part) for part in node]


@given(st.lists(states, min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_each_rank_gets_its_own_tree_back(values):
    trees = [flatten({"state": value}).tree for value in values]

    one = joined(trees)

    for rank, tree in enumerate(trees):
        assert canonical(view_of(one, len(trees), RankView(rank=rank, world_size=len(trees)))) == canonical(tree)


@pytest.mark.parametrize("make", [Holder, lambda value: Pair(1, value), lambda value: [0, (value,)]])
def test_only_what_differs_in_an_object_or_record_is_held_for_each_rank(make):
    trees = [flatten({"one": make({"rank": rank, "same": "text"})}).tree for rank in range(3)]

    one = joined(trees)

    assert json.dumps(one).count("text") == 1
    for rank, tree in enumerate(trees):
        assert view_of(one, 3, RankView(rank=rank, world_size=3)) == tree


@given(states, st.integers(1, 5))
def test_trees_that_are_alike_are_held_once(value, count):
    tree = flatten({"state": value}).tree

    assert joined([tree] * count) == tree


def test_true_is_not_one_and_both_are_kept():
    one = joined([["d", ["x", True]], ["d", ["x", 1]]])

    assert view_of(one, 2, RankView(rank=0, world_size=2)) == ["d", ["x", True]]
    assert view_of(one, 2, RankView(rank=1, world_size=2)) == ["d", ["x", 1]]


def test_what_only_some_ranks_have_is_no_riddle_at_another_size():
    one = joined([["d", ["a", 1]], ["d", ["a", 1, "b", 2]]])

    assert view_of(one, 2, RankView(rank=0, world_size=3)) == ["d", ["a", 1, "b", 2]]


def test_every_leaf_nobody_can_choose_is_named():
    one = joined([["d", ["a", 1, "r", ["d", ["s", 1]]]], ["d", ["a", 2, "r", ["d", ["s", 2]]]]])

    with pytest.raises(StructureMismatch, match=r"^a, r\.s: the 2 ranks that saved .*per_rank="):
        view_of(one, 2, RankView(rank=0, world_size=1))
    assert view_of(one, 2, RankView(wanted=lambda name: name == "b")) == ["d", ["r", ["d", []]]]


@pytest.mark.parametrize("node", [["per", [1], [0]], ["per", [1], [0, 5]], ["per", [1], [0, "x"]], ["per", [], [0, 0]]])
def test_a_choice_no_save_has_written_is_refused(node):
    with pytest.raises(ManifestInvalid, match="is no node"):
        view_of(["d", ["x", node]], 2, RankView(rank=0, world_size=2))


@pytest.mark.parametrize("key", ["a", "v", "per", "d", "m", "x", "-", ""])
@pytest.mark.parametrize("wrap", [lambda key, item: {key: 0, "own": item}, lambda key, item: [key, 0, item]])
def test_a_key_or_a_word_that_is_spelt_like_a_tag_hides_nothing_that_differs(key, wrap):
    trees = [flatten({"outer": wrap(key, {"inner": Holder(wrap(key, rank))})}).tree for rank in range(2)]

    whole = joined(trees)

    assert holds_choice(whole)
    assert not holds_choice(trees[0])
    assert [view_of(whole, 2, RankView(rank=rank, world_size=2)) for rank in range(2)] == trees


@pytest.mark.parametrize("keys", [["a"], ["v"], ["a", "b"], ["v", "b"], ["b", "a"], ["per"], ["per", "b"]], ids=str)
@pytest.mark.parametrize("at", [0, -1])
def test_a_choice_is_found_whatever_the_keys_before_it_are_called(keys, at):
    """Nodes begin with short texts too."""
    trees = [["d", [half for key in keys for half in (key, rank * (key == keys[at]))]] for rank in (1, 2)]

    one = joined(trees)

    assert holds_choice(one)
    assert [view_of(one, 2, RankView(rank=rank, world_size=2)) for rank in (0, 1)] == trees
    assert not holds_choice(
        ["d", ["x", ["a", 0], "y", ["a", 1, "p"], "z", ["v", 0, "numpy", "int8", [1], None, 0, "", 0]]]
    )


def test_what_is_alike_on_all_ranks_is_not_made_anew():
    alike = ["d", ["a", ["l", [1, 2]]]]

    seen = view_of(["d", ["x", alike, "seed", ["per", [1, 2], [0, 1]]]], 2, RankView(rank=1, world_size=2))

    assert seen == ["d", ["x", alike, "seed", 2]]
    assert seen[1][1] is alike


@pytest.mark.parametrize("own", [-1, 2])
def test_a_rank_that_did_not_save_has_no_values(own):
    one = joined([["d", ["a", 1]], ["d", ["a", 2]]])

    with pytest.raises(StructureMismatch, match=rf"per_rank= gives rank {own}, but 2 ranks saved. Give one of 0 to 1"):
        view_of(one, 2, RankView(source=own))
    assert [view_of(one, 2, RankView(source=rank)) for rank in (0, 1)] == [["d", ["a", 1]], ["d", ["a", 2]]]
    assert view_of(["d", ["a", 1]], 2, RankView(source=own)) == ["d", ["a", 1]]  # nothing to choose


def test_of_many_leaves_nobody_can_choose_the_first_eight_are_named():
    def tree(rank, count):
        return ["d", [half for i in range(count) for half in (f"k{i}", rank)]]

    for count, told in ((8, r"k6, k7: the 2 ranks"), (9, r"k6, k7 and 1 more: the 2"), (10, r"k7 and 2 more: the 2")):
        with pytest.raises(StructureMismatch, match=rf"^k0, k1, .*{told}"):
            view_of(joined([tree(0, count), tree(1, count)]), 2, RankView())


def test_whoever_only_looks_sees_what_the_first_rank_has():
    one = joined([["d", ["a", 1, "b", ["x", "codec", 5]]], ["d", ["a", 2, "b", ["x", "codec", 6]]]])

    assert view_of(one, 2, RankView(lenient=True, world_size=7)) == ["d", ["a", 1, "b", ["x", "codec", 5]]]


def test_a_choice_inside_a_codec_is_made():
    tree = ["d", ["c", ["x", "codec", ["l", [["per", [1, 2], [0, 1]], 3]]]]]

    assert view_of(tree, 2, RankView(rank=1, world_size=2)) == ["d", ["c", ["x", "codec", ["l", [2, 3]]]]]


def test_a_rank_that_has_nothing_at_all_gets_an_empty_state():
    one = joined([["-"], ["d", ["a", 1]]])

    assert view_of(one, 2, RankView(rank=0, world_size=2)) == ["d", []]
    assert view_of(one, 2, RankView(rank=1, world_size=2)) == ["d", ["a", 1]]


def test_what_some_ranks_lack_and_others_differ_in_is_kept_for_each():
    trees = [["d", ["s", ["d", ["x", 1]]]], ["d", []], ["d", ["s", ["d", ["x", 2]]]]]

    one = joined(trees)

    assert [view_of(one, 3, RankView(rank=rank, world_size=3)) for rank in range(3)] == trees


@pytest.mark.parametrize(
    "trees",
    [
        [["l", [1]], ["l", [1, 2]]], [["l", [1]], ["t", [1]]], [["o", ["a", 1], True], ["o", ["a", 2], False]],
        [["nt", "m:A", ["x"], [1]], ["nt", "m:B", ["x"], [2]]], [["m", "module", "a", 1], ["m", "module", "b", 2]],
        [["m", "optimizer", "a", 1, [["w", [1]]]], ["m", "optimizer", "a", 2, [["v", [1]]]]], [5, ["l", []]],
        [["x", "c", 1], ["x", "c", 2]], [["a", 0], ["a", 1]],
    ],
    ids=str,
)  # fmt: skip
def test_what_is_of_another_kind_is_held_whole_for_each_rank(trees):
    one = joined(trees)

    assert one == ["per", trees, [0, 1]]
    assert [view_of(one, 2, RankView(rank=rank, world_size=2)) for rank in range(2)] == trees


# --- what is nobody's own --------------------------------------------------------------------------------------------


class Clock:
    """An object of which some values are taken from rank 0 for all."""

    of_rank_zero = ("seen.at", "deep.%i3", "nowhere")

    def __init__(self, rank):
        self.rank = rank

    def state_dict(self):
        return {"seen": {"at": self.rank, "own": self.rank}, "deep": {3: [self.rank], 4: self.rank}}

    def load_state_dict(self, state):
        self.state = state


def test_what_a_class_says_is_nobodys_own_is_told_as_the_first_has_it():
    flats = [flatten({"runs": [{"c": Clock(rank)}], "own": rank}) for rank in (7, 8)]
    known = {}

    first, second = (told_once(flat.tree, "", flat.of_rank_zero, known) for flat in flats)

    assert flats[0].of_rank_zero == ("runs.0.c.seen.at", "runs.0.c.deep.%i3", "runs.0.c.nowhere")
    assert first == flats[0].tree
    state = prepare(second, []).finish()
    assert state == {"runs": [{"c": {"seen": {"at": 7, "own": 8}, "deep": {3: [7], 4: 8}}}], "own": 8}
    assert sorted(known) == ["runs.0.c.deep.%i3", "runs.0.c.seen.at"]


def test_a_codec_is_looked_into_as_well():
    trees = [["x", "codec", ["d", ["at", rank, "own", rank]]] for rank in (1, 2)]
    known = {}

    assert [told_once(tree, "", ["at"], known) for tree in trees][1] == ["x", "codec", ["d", ["at", 1, "own", 2]]]
    assert told_once(["d", ["at", ["a", 0]]], "", ["b"], {}) == ["d", ["at", ["a", 0]]]
    assert told_once(7, "", ["at"], {}) == 7


def test_arrays_are_never_nobodys_own():
    class Wrong(Clock):
        of_rank_zero = ("deep",)

        def state_dict(self):
            return {"deep": {"w": np.ones(2)}}

    with pytest.raises(UnsupportedType, match=r"^c\.deep: its class names it in of_rank_zero, but it holds arrays"):
        flatten({"c": Wrong(0)})
