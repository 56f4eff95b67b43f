"""Subset: a state that is taken apart, reduced to some of its leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable

import msgspec

from model_checkpoint.state import Flat
from model_checkpoint.tree.nodes.specs import select
from model_checkpoint.tree.nodes.walk import arrays


def subset(flat: Flat, keep: Callable[[str], bool]) -> Flat:
    """Return ``flat`` with only the leaves whose name passes ``keep``, and only the arrays they need.

    Example:
        >>> import numpy as np
        >>> from model_checkpoint.tree.flattening.flatten import flatten
        >>> part = subset(flatten({"a": np.zeros(2), "b": np.ones(3), "c": 1}), lambda name: name != "a")
        >>> part.tree, [leaf.name for leaf in part.leaves]
        (['d', ['b', ['a', 0], 'c', 1]], ['b'])
    """
    tree = copy.deepcopy(select(flat.tree, keep))
    nodes = [node for _, node in arrays(tree)]
    used = sorted({node[1] for node in nodes})
    place = {old: new for new, old in enumerate(used)}
    for node in nodes:
        node[1] = place[node[1]]
    return msgspec.structs.replace(flat, tree=tree, leaves=[flat.leaves[i] for i in used])
