"""The trees of many ranks as one: nothing of any rank is lost, and only what differs is held more than once."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.errors import ManifestInvalid, StructureMismatch
from model_checkpoint.tree.flattening.flatten import flatten
from model_checkpoint.tree.nodes.per_rank import RankView, joined, view_of

scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(allow_nan=False), st.sampled_from("abc"))
states = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
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
