"""A tree with one node spoilt is refused with a typed error or loads; nothing else ever happens."""

import collections
import copy
import functools
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tree.carrying import fill, stored

from model_checkpoint.errors import CheckpointException
from model_checkpoint.tree import prepare, rename, rng_state, select, specs, summary, unmet

junk = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.just(2**60), st.text(max_size=3), st.just([]), st.just(["a", 99]),
    st.lists(st.sampled_from(["a", "v", "d", "l", "t", "m", "x", "dc", "e", "o", 0, -1, None, "int8", []]), max_size=5),
)  # fmt: skip


def live():
    model = torch.nn.Linear(2, 2)
    return {
        "model": model, "optimizer": torch.optim.Adam(model.parameters()), "list": [np.zeros(2), 1],
        "pair": (torch.zeros(1), 2), "cfg": collections.OrderedDict(a=1), "rng": rng_state(), "none": None,
    }  # fmt: skip


@functools.cache
def whole():
    state = live()
    state["model"](torch.ones(2)).sum().backward()
    state["optimizer"].step()
    base = torch.arange(8.0)
    return stored(state | {"none": {1: base, "v": base[2:], "c": collections.Counter("aab")}})


def places(node, path=()):
    yield path
    if isinstance(node, list):
        for i, item in enumerate(node):
            yield from places(item, (*path, i))


def spoilt(tree, path, value):
    tree = copy.deepcopy(tree)
    if not path:
        return value
    place = tree
    for i in path[:-1]:
        place = place[i]
    place[path[-1]] = value
    return tree


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_spoilt_tree_is_refused_by_type_or_loads(data):
    tree, entries, blobs, _ = whole()
    bad = spoilt(tree, data.draw(st.sampled_from(list(places(tree)))), data.draw(junk))
    uses = [
        lambda: specs(bad, entries),
        lambda: summary(bad, entries),
        lambda: select(bad, lambda name: len(name) % 2 == 0),
        lambda: rename(bad, lambda name: name.replace("model", "net")),
        lambda: unmet(bad, live()),
        lambda: fill(prepare(bad, entries), blobs),
        lambda: prepare(bad, entries, into=live()),
    ]

    for use in uses:
        with suppress(CheckpointException):
            use()
