"""Specs: what a saved tree holds, and the tree reduced to a part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from model_checkpoint.manifest import Entry, Node
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.state import Spec
from model_checkpoint.tree.nodes.names import final
from model_checkpoint.tree.nodes.walk import ABSENT, ARRAYS, array_nodes, arrays, children, damaged, tag_of


@collector_paused()
def specs(tree: Node, entries: Sequence[Entry]) -> list[Spec]:
    """Return every array leaf of a saved tree in order; aliases of one stored array have a Spec each.

    Example:
        >>> specs(["d", ["epoch", 3]], [])
        []
    """
    return [_spec(name, node, entries) for name, node in arrays(tree)]


def _spec(name: str, node: list[Any], entries: Sequence[Entry]) -> Spec:
    index = _entry_of(node, entries)
    if node[0] == "a":
        entry = entries[index]
        return Spec(name, entry.dtype, entry.shape, index, entry.kind)
    match node:
        case ["v", _, str(kind), str(dtype), list(shape), *_] if all(type(n) is int and n >= 0 for n in shape):
            return Spec(name, dtype, tuple(shape), index, kind)
    raise damaged(node)


def _entry_of(node: list[Any], entries: Sequence[Entry]) -> int:
    """Return which stored array an array node shows."""
    if len(node) > 1 and type(node[1]) is int and 0 <= node[1] < len(entries):
        return node[1]
    raise damaged(node)


@collector_paused()
def entries_in(tree: Node, entries: Sequence[Entry]) -> list[int]:
    """Return which stored arrays a saved tree needs, in their order.

    Example:
        >>> entries_in(["d", ["epoch", 3]], [])
        []
    """
    return sorted({_entry_of(node, entries) for node in array_nodes(tree)})


def part_at(tree: Node, name: str) -> Node:
    """Return what a saved tree holds under one name; ABSENT if it has nothing of that name.

    Example:
        >>> part_at(["d", ["a", 1, "b", ["d", ["c", 2, "e", 3]]]], "b")
        ['d', ['c', 2, 'e', 3]]
    """
    pending: list[tuple[str, Node]] = [("", tree)]
    while pending:
        prefix, node = pending.pop()
        if final(prefix) == name:
            return node
        if isinstance(node, list) and tag_of(node) not in ARRAYS and (not prefix or name.startswith(f"{prefix}.")):
            pending.extend(children(node, prefix))
    return ABSENT


def select(tree: Node, keep: Callable[[str], bool]) -> Node:
    """Return the tree reduced to the leaves whose name passes ``keep``; empty of them, it is ``["d", []]``.

    Example:
        >>> select(["d", ["a", 1, "b", ["d", ["c", 2, "e", 3]]]], lambda name: name == "b.c")
        ['d', ['b', ['d', ['c', 2]]]]
    """
    kept = _kept(tree, "", keep)
    return ["d", []] if kept == ABSENT else kept


def _kept(node: Node, name: str, keep: Callable[[str], bool]) -> Node:
    """Return what is left of ``node``, ABSENT if nothing is."""
    if not isinstance(node, list) or tag_of(node) in ARRAYS:
        return node if keep(final(name)) else ABSENT
    under = children(node, name)
    if not under:
        return node if keep(final(name)) else ABSENT
    if node[0] == "x":  # a codec needs all of its value
        return node if any(keep(leaf) for leaf in _names(node, name)) else ABSENT
    if node[0] == "m" and node[1] == "optimizer" and len(node) > 4:
        return _kept_optimizer(node, name, keep)
    parts = [_kept(item, place, keep) for place, item in under]
    if all(part == ABSENT for part in parts):
        return ABSENT
    return with_items(node, parts)


def _names(node: Node, name: str) -> list[str]:
    under = children(node, name) if isinstance(node, list) else []
    return [leaf for place, item in under for leaf in _names(item, place)] if under else [final(name)]


def with_items(node: list[Any], parts: list[Node]) -> Node:
    """Return a container with ``parts`` in place of its items."""
    if node[0] in "dko":
        left = [(key, part) for key, part in zip(node[1][::2], parts, strict=True) if part != ABSENT]
        return [node[0], [half for pair in left for half in pair], *node[2:]]
    if node[0] in ("l", "t"):
        return [node[0], parts]
    if node[0] in ("nt", "dc"):
        return [*node[:3], parts]
    return [*node[:3], parts[0], *node[4:]]


def _kept_optimizer(node: list[Any], name: str, keep: Callable[[str], bool]) -> Node:
    """Select in an optimizer, whose state is named after parameters rather than by its keys."""
    inner = node[3]
    chosen = {id(item): _kept(item, place, keep) for place, item in children(node, name)}
    flat: list[Any] = []
    for key, part in zip(inner[1][::2], inner[1][1::2], strict=True):
        left = chosen[id(part)] if id(part) in chosen else _state_left(part, chosen)
        if left != ABSENT:
            flat += [key, left]
    return [*node[:3], [inner[0], flat, *inner[2:]], *node[4:]] if flat else ABSENT


def _state_left(part: list[Any], chosen: dict[int, Node]) -> Node:
    pairs = zip(part[1][::2], part[1][1::2], strict=True)
    flat = [half for key, item in pairs if chosen[id(item)] != ABSENT for half in (key, chosen[id(item)])]
    return [part[0], flat, *part[2:]] if flat else ABSENT
