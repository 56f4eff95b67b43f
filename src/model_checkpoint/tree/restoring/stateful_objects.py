"""Stateful objects: live things with a state_dict take their saved state through their own ``load_state_dict``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from model_checkpoint.manifest import Node
from model_checkpoint.tree.arrays.frameworks import state_of
from model_checkpoint.tree.nodes.walk import ARRAYS, array_nodes, tag_of
from model_checkpoint.tree.values.classes import label

if TYPE_CHECKING:
    from model_checkpoint.tree.restoring.matcher import Matcher


class ObjectLoad:
    """One ``load_state_dict`` to call when the bytes are there, and the way back."""

    def __init__(self, name: str, live: Any, *, make: Callable[[], Any], apply: Callable[[Any], None]) -> None:
        self.name = name
        self._live, self._make, self._apply = live, make, apply
        self._before: Any = None

    def remember(self) -> None:
        """Keep a copy of the present state for :meth:`undo`."""
        self._before = copy.deepcopy(state_of(self._live))

    def run(self) -> None:
        """Load the saved state."""
        self._apply(self._make())

    def undo(self) -> None:
        """Bring the remembered state back."""
        self._apply(self._before)


def match_object(matcher: Matcher, node: Node, live: Any, *, name: str, kind: str) -> None:
    """Lay a saved state over a live object."""
    if kind == "module":
        from model_checkpoint.tree.restoring import torch_modules

        torch_modules.match_module(matcher, node, live, name=name)
    elif kind == "optimizer":
        from model_checkpoint.tree.restoring import torch_optimizers

        torch_optimizers.match_optimizer(matcher, node, live, name=name)
    else:
        _match_any(matcher, node, live, name=name, kind=kind)


def stays_torch(matcher: Matcher, inner: Node, name: str) -> bool:
    """Note the tensors of a torch object that framework= would turn into arrays its load_state_dict does not take."""
    gone = sum(map(matcher.builder.leaves_torch, array_nodes(inner)))
    if gone:
        matcher.problem(name, f"framework= would give it {gone} arrays that are no torch tensors. Leave framework= out")
    return not gone


def inner_of(node: Node) -> Node:
    """Return the state inside the node of a stateful object; any other node is taken for the state itself."""
    if isinstance(node, list) and tag_of(node) == "m" and len(node) > 3:
        inner: Node = node[3]
        return inner
    return node


def _match_any(matcher: Matcher, node: Node, live: Any, *, name: str, kind: str) -> None:
    saved_class = node[2] if isinstance(node, list) and tag_of(node) == "m" else None
    if tag_of(node) in ARRAYS:
        matcher.problem(name, f"saved as an array, live it is a {type(live).__qualname__}")
        return
    if kind == "scheduler" and saved_class not in (None, label(type(live))):
        matcher.problem(name, f"saved from {saved_class}, live it is {label(type(live))}")
        return
    make = matcher.fresh(inner_of(node), name)
    if make is not None:
        matcher.loads.append(ObjectLoad(name, live, make=make, apply=live.load_state_dict))
