"""Matching: what is known while a saved tree is laid over live objects, and what is left to do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

from model_checkpoint.errors import CheckpointException
from model_checkpoint.manifest import Node
from model_checkpoint.tree.arrays.frameworks import finder
from model_checkpoint.tree.nodes.names import ROOT
from model_checkpoint.tree.nodes.walk import array_nodes, tag_of
from model_checkpoint.tree.restoring.build import Builder
from model_checkpoint.tree.restoring.destinations import Destinations
from model_checkpoint.tree.restoring.live_state import LiveState

Make = Callable[[], Any]


class ObjectLoad:
    """One object to fill when the bytes are there, and the way back."""

    def __init__(self, name: str, *, make: Make, apply: Callable[[Any], None], present: Make) -> None:
        self.name = name
        self._make, self._apply, self._present = make, apply, present
        self._before: Any = None

    def remember(self) -> None:
        """Keep a copy of the present state for :meth:`undo`."""
        self._before = copy.deepcopy(self._present())

    def run(self) -> None:
        """Load the saved state."""
        self._apply(self._make())

    def undo(self) -> None:
        """Bring the remembered state back."""
        self._apply(self._before)


class Matching:
    """The differences found so far, the live arrays that wait for bytes, and the objects to fill."""

    def __init__(self, builder: Builder, live: LiveState, *, atomic: bool = False, cast: bool = False) -> None:
        self.builder, self.live, self.atomic = builder, live, atomic
        self.problems: list[str] = []
        self.destinations = Destinations(builder, live, atomic=atomic, cast=cast)
        self.loads: list[ObjectLoad] = []
        self.parameter_names: dict[int, str] = {}
        self.made: list[Make] = []

    def problem(self, name: str, what: str) -> Make | None:
        """Note a difference; the live value stays."""
        self.problems.append(f"{name or ROOT}: {what}")
        return None

    def fill(self, node: Node, live: Any, name: str) -> Make | None:
        """Lay an array node over a live array; None if that stays in its place, else what makes its successor."""
        find = finder(type(live))
        if find is None or not isinstance(node, list):
            raise TypeError("only arrays land")
        return self.destinations.match(node, live, name, find)

    def fresh(self, node: Node, name: str) -> Make | None:
        """Build ``node`` anew; what cannot be built is a problem."""
        try:
            self.builder.check(node, name)
        except CheckpointException as error:
            self.problems.append(error.message)
            return None
        make = cache(lambda: self.builder.build(node))
        self.made.append(make)
        return make

    def saved_items(self, node: list[Any]) -> dict[Any, Node]:
        """Return the items of a mapping node by their keys."""
        flat = node[1]
        self.builder.check_keys(flat[::2])
        return dict(zip((self.builder.key(key) for key in flat[::2]), flat[1::2], strict=True))

    def stays_torch(self, inner: Node, name: str) -> bool:
        """Note the tensors of a torch object that framework= would turn into arrays it does not take."""
        gone = sum(map(self.builder.leaves_torch, array_nodes(inner)))
        if gone:
            self.problem(
                name, f"framework= would give it {gone} arrays that are no torch tensors. Leave framework= out"
            )
        return not gone


def inner_of(node: Node) -> Node:
    """Return the state inside the node of a stateful object; any other node is taken for the state itself."""
    if isinstance(node, list) and tag_of(node) == "m":
        inner: Node = node[3]
        return inner
    return node
