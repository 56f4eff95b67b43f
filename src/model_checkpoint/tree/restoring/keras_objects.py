"""Keras objects: saved arrays reach the variables of live models and optimizers, whichever backend holds them."""

from __future__ import annotations

from typing import Any

from model_checkpoint.manifest import Node
from model_checkpoint.tree.arrays.keras_variables import is_built, named_variables
from model_checkpoint.tree.nodes.names import final, join
from model_checkpoint.tree.nodes.walk import ARRAYS, MAPPINGS, leaves, tag_of
from model_checkpoint.tree.restoring.destinations import Assign
from model_checkpoint.tree.restoring.matching import Matching, inner_of


def match_keras(matching: Matching, node: Node, live: Any, *, name: str) -> None:
    """Lay saved variables over those of a live Keras object."""
    inner = inner_of(node)
    if not isinstance(inner, list) or tag_of(inner) not in MAPPINGS:
        matching.problem(name, f"live it is a {type(live).__qualname__}, saved were no variables")
        return
    saved, mine = dict(leaves(inner)), named_variables(live)
    if not is_built(live) and len(saved) != len(mine):
        matching.problem(
            name, f"saved with {len(saved)} variables, live it has {len(mine)}: it is not built. Call its build() first"
        )
        return
    for key, variable in mine.items():
        item = saved.get(final(key))
        if item is None:
            continue
        if tag_of(item) not in ARRAYS:
            matching.problem(join(name, key), "live it is a variable, saved was a plain value")
            continue
        make = matching.fill(item, variable.value, join(name, key))
        if make is not None:
            matching.destinations.assigns.append(Assign(variable.assign, make))
