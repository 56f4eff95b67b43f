"""Dotted keys and the nested state they stand for, by what DCP itself makes of a state."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

from model_checkpoint.distributed.dcp_keys.key_paths import nested, path_of_key
from model_checkpoint.errors import StructureMismatch


@pytest.mark.parametrize(
    ("paths", "path"),
    [
        (None, ("a.b",)),
        ({}, ("a.b",)),
        ({"other": ("other",)}, ("a.b",)),
        ({"a.b": ("a", "b")}, ("a", "b")),
        ({"a.b": ("a", 3, "b")}, ("a", 3, "b")),
        ({"a.b": ["a", 0]}, ("a", 0)),
        ({"a.b": (1.5, True, None)}, ("1.5", "True", "None")),
    ],
)
def test_a_key_lies_where_the_planner_says_or_at_the_top(paths, path):
    found = path_of_key("a.b", paths)

    assert (found, [type(part) for part in found]) == (path, [type(part) for part in path])


@pytest.mark.parametrize(
    ("items", "state"),
    [
        ([], {}),
        ([(("a",), 1)], {"a": 1}),
        ([(("a", "b", "c"), 1), (("a", "b", "d"), 2)], {"a": {"b": {"c": 1, "d": 2}}}),
        ([(("a", 0), 1), (("a", 1), 2)], {"a": [1, 2]}),
        ([(("a", 2), 1)], {"a": [None, None, 1]}),
        ([(("a", 1), 1), (("a", 0), 2)], {"a": [2, 1]}),
        ([(("a", 1, "b"), 1), (("a", 1, "c"), 2), (("a", 0, "b"), 3)], {"a": [{"b": 3}, {"b": 1, "c": 2}]}),
        ([(("a", 1, 1), 1), (("a", 1, 0), 2)], {"a": [None, [2, 1]]}),
        ([(("a", 0, 0, "b"), 1), (("a", 0, 2, "b"), 2)], {"a": [[{"b": 1}, None, {"b": 2}]]}),
        ([(("a", "0"), 1)], {"a": {"0": 1}}),
    ],
)
def test_a_nested_state_is_built_from_its_keys(items, state):
    assert nested(items) == state


@pytest.mark.parametrize(
    "paths",
    [
        [("a", "b"), ("a", 0)],
        [("a", 0), ("a", "b")],
        [("a", "b", "c"), ("a", 0, "c")],
        [("a", 0, "c"), ("a", "b", "c")],
        [("a", "b", "c"), ("a", "b", 0)],
        [("a", 0, "c"), ("a", 0, 0)],
        [("a",), ("a", "b")],
        [("a", "b"), ("a", "b", "c")],
        [("a", 0, "b"), ("a", "b", 0, "c")],
        [("a", 0), ("a", 0, 0)],
        [("a", 0, 0), ("a", 0, "b", "c")],
        [(0, "a")],
        [(0,)],
    ],
)
def test_keys_that_contradict_each_other_are_named(paths):
    with pytest.raises(StructureMismatch, match=rf"^{'.'.join(map(str, paths[-1]))}: another key makes something else"):
        nested([(path, number) for number, path in enumerate(paths)])


states = st.recursive(
    st.integers(),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3) | st.dictionaries(st.text(min_size=1), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(min_size=1), states, max_size=4))
def test_what_dcp_flattens_is_the_same_state_again(state):
    flat, paths = flatten_state_dict(state)
    if len({tuple(map(str, path)) for path in paths.values()}) == len({".".join(map(str, p)) for p in paths.values()}):
        assert nested([(path_of_key(key, paths), value) for key, value in flat.items()]) == state
