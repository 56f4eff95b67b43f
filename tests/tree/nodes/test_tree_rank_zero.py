"""What a class names as rank 0's is found by its name wherever it lies, and is the same for all."""

import pytest

from model_checkpoint.errors import UnsupportedType
from model_checkpoint.tree.nodes.rank_zero import names_of_rank_zero, told_once


def clock(at, inner=None):
    return ["d", ["at", at, "more", ["l", [1, 2]], *(["inner", inner] if inner else [])]]


@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (lambda node: ["d", ["run", node, "rest", 5]], "run.at"),
        (lambda node: ["d", ["run", ["m", "object", "a:B", node]]], "run.at"),
        (lambda node: ["d", ["run", ["x", "codec", node]]], "run.at"),
        (lambda node: ["d", ["runs", ["l", [7, node]]]], "runs.1.at"),
        (lambda node: node, "at"),
    ],
)
def test_a_value_of_rank_zero_is_given_to_all_and_nothing_else_is(wrap, name):
    trees, known = [wrap(clock(at)) for at in ("noon", "one")], {}

    told = [told_once(tree, "", [name], known) for tree in trees]

    assert known == {name: "noon"}
    assert told == [trees[0], trees[0]]
    assert told_once(trees[1], "", ["elsewhere.at", f"{name}x"], {}) == trees[1]


def test_all_that_lies_below_a_name_is_rank_zeros():
    first, second = (clock("x", inner=clock(at)) for at in ("noon", "one"))
    known = {}

    told = [told_once(tree, "", ["inner"], known) for tree in (first, second)]

    assert known == {"inner": clock("noon")}
    assert told == [first, first]


def test_names_are_those_of_the_objects_that_declare_them_and_never_of_arrays():
    node = clock("noon")
    tree = ["d", ["runs", ["l", [7, node]], "w", ["a", 0]]]
    holding = ["d", ["w", ["d", ["at", ["l", [["a", 0]]]]], "v", ["a", 1]]]

    assert names_of_rank_zero(tree, {id(node): ("at", "more")}) == ("runs.1.at", "runs.1.more")
    assert names_of_rank_zero(tree, {}) == ()
    assert names_of_rank_zero(holding, {id(holding): ("other",)}) == ("other",)
    with pytest.raises(UnsupportedType, match=r"^w.at: its class names it in of_rank_zero, but it holds arrays"):
        names_of_rank_zero(holding, {id(holding): ("w.at",)})
