"""Rank zero: values that tell of a process and are nobody's own, of which those of rank 0 are kept for all ranks.

A clock differs on every rank, and no rank needs its own back. A class names such values of its state by an attribute
``of_rank_zero``, a tuple of dotted names; then they are stored once and loaded at any number of ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from model_checkpoint.errors import UnsupportedType
from model_checkpoint.manifest import Node
from model_checkpoint.tree.nodes.names import join
from model_checkpoint.tree.nodes.specs import with_items
from model_checkpoint.tree.nodes.walk import CONTAINERS, array_nodes, children, places


def names_of_rank_zero(tree: Node, declared: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    """The names in a tree of what its objects have ``declared``, each by the identity of its node."""
    names = [join(place, name) for place, below in places(tree, declared) for name in below]
    for name, node in _below(tree, "", names):
        if array_nodes(node):
            raise UnsupportedType(
                f"{name}: its class names it in of_rank_zero, but it holds arrays, and only plain values can be given "
                "to all ranks. Take the name out of the tuple, or the arrays out of that part of the state."
            )
    return tuple(names)


def _below(node: Node, name: str, names: Collection[str]) -> list[tuple[str, Node]]:
    if name in names:
        return [(name, node)]
    if not _leads_on(node, name, names):
        return []
    return [found for place, item in children(node, name) for found in _below(item, place, names)]  # type: ignore[arg-type]


def _leads_on(node: Node, name: str, names: Collection[str]) -> bool:
    """Whether one of ``names`` may lie inside a node."""
    if not isinstance(node, list) or node[0] not in CONTAINERS:
        return False
    return not name or any(one.startswith(f"{name}.") for one in names)


def told_once(node: Node, name: str, names: Collection[str], known: dict[str, Node]) -> Node:
    """The same node, where under each of ``names`` is what is ``known`` of it; what is not known yet is noted.

    Example:
        >>> first, second = ["d", ["at", "noon", "x", 1]], ["d", ["at", "one", "x", 2]]
        >>> known = {}
        >>> [told_once(tree, "", ["at"], known) for tree in (first, second)]
        [['d', ['at', 'noon', 'x', 1]], ['d', ['at', 'noon', 'x', 2]]]
    """
    if name in names:
        return known.setdefault(name, node)
    if not isinstance(node, list) or not _leads_on(node, name, names):
        return node
    if node[0] in ("m", "x"):
        at = 3 if node[0] == "m" else 2
        inner: list[Any] = [told_once(node[at], name, names, known)]
        return [*node[:at], *inner, *node[at + 1 :]]
    return with_items(node, [told_once(item, place, names, known) for place, item in children(node, name)])
