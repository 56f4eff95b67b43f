"""Rename: the tree as if its leaves had been saved under other names.

A part moves whole when all its leaves move alike; a dict is taken apart when they do not. Anything else (a list, an
optimizer, a dataclass) cannot be taken apart without changing what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model_checkpoint.errors import StructureMismatch
from model_checkpoint.manifest import Node
from model_checkpoint.tree.nodes.names import ROOT, join, undotted, unescape
from model_checkpoint.tree.nodes.walk import ABSENT, ARRAYS, MAPPINGS, arrays, children, leaves, namer, tag_of

NewName = Callable[[str], str]


def rename(tree: Node, new_name: NewName) -> Node:
    """Return the tree with every leaf under the name ``new_name`` gives it.

    Parameter names inside optimizers follow the parameters.

    Raises:
        StructureMismatch: two leaves would have one name, or a path cannot be moved.

    Example:
        >>> rename(["d", ["model", ["d", ["w", 1, "b", 2]]]], lambda name: name.replace("model.w", "net.w"))
        ['d', ['model', ['d', ['b', 2]], 'net', ['d', ['w', 1]]]]
    """
    arrays(tree)  # refuses a container of the wrong form
    new_name = _texts_only(new_name)
    moved: list[tuple[str, Node]] = []
    left = _left(tree, "", new_name, moved)
    kept: Node = ["d", []] if left == ABSENT else left
    for name, node in moved:
        kept = _insert(kept, name, node, whole=name)
    return kept


def _texts_only(new_name: NewName) -> NewName:
    """Return ``new_name``, but refusing what is no name."""

    def checked(name: str) -> str:
        new = new_name(name)
        if not isinstance(new, str):
            raise StructureMismatch(
                f"{name}: rename= must return a text, got {new!r}. Return the name itself to keep it."
            )
        return new

    return checked


def _left(node: Node, name: str, new_name: NewName, moved: list[tuple[str, Node]]) -> Node:
    """Return what stays of ``node``; what goes elsewhere is added to ``moved``."""
    place = _new_place(node, name, new_name)
    if place == name:
        return _follow(node, new_name)
    if place is not None and name:
        moved.append((place, _follow(node, new_name)))
        return ABSENT
    if tag_of(node) == "m" and isinstance(node, list) and tag_of(node[3]) in MAPPINGS and node[1] == "module":
        inner = _left(node[3], name, new_name, moved)
        return ABSENT if inner == ABSENT else [*node[:3], inner, *node[4:]]
    if not isinstance(node, list) or tag_of(node) not in MAPPINGS:
        raise StructureMismatch(
            f"{name or ROOT}: rename= cannot take this part to pieces, only dicts and modules. "
            "Move all of it, or rename after loading."
        )
    flat: list[Any] = []
    for key, (under, item) in zip(node[1][::2], children(node, name), strict=True):
        rest = _left(item, under, new_name, moved)
        flat += [] if rest == ABSENT else [key, rest]
    return [node[0], flat, *node[2:]] if flat else ABSENT


def _new_place(node: Node, name: str, new_name: NewName) -> str | None:
    """Return where all of ``node`` goes, or None if its leaves go different ways."""
    places = {_moved_prefix(leaf, name, new_name(leaf)) for leaf in _own_names(node, name)}
    return places.pop() if len(places) == 1 else None


def _own_names(node: Node, name: str) -> list[str]:
    """Return the names that decide about a part; state named after parameters follows them instead."""
    if tag_of(node) == "m" and isinstance(node, list) and node[1] == "optimizer":
        by_parameter = join(join(name, "state"), "")
        return [leaf for leaf, _ in leaves(node[3], name) if not leaf.startswith(by_parameter)] or [name]
    if not isinstance(node, list) or tag_of(node) in ARRAYS:
        return [name]
    under = children(node, name)
    return [leaf for place, item in under for leaf in _own_names(item, place)] if under else [name]


def _moved_prefix(leaf: str, name: str, new: str) -> str | None:
    tail = leaf[len(name) :]
    if new == leaf:
        return name
    return new[: len(new) - len(tail)] if tail and new.endswith(tail) else (new if not tail else None)


def _follow(node: Node, new_name: NewName) -> Node:
    """Give the parameters an optimizer node knows their new names."""
    if not isinstance(node, list) or tag_of(node) in ARRAYS:
        return node
    if node[0] == "m" and node[1] == "optimizer" and len(node) > 4:
        return [*node[:4], [[None if n is None else new_name(n), shape] for n, shape in node[4]]]
    if node[0] in MAPPINGS:
        flat = list(node[1])
        flat[1::2] = [_follow(item, new_name) for item in flat[1::2]]
        return [node[0], flat, *node[2:]]
    return [node[0], [_follow(item, new_name) for item in node[1]]] if node[0] in ("l", "t") else node


def _insert(node: Node, name: str, item: Node, *, whole: str) -> Node:
    """Return ``node`` with ``item`` at the dotted ``name`` inside it."""
    if tag_of(node) == "m" and isinstance(node, list) and node[1] == "module":
        return [*node[:3], _insert(node[3], name, item, whole=whole), *node[4:]]
    if not isinstance(node, list) or tag_of(node) not in MAPPINGS:
        raise StructureMismatch(f"{whole}: rename= moves a leaf there, but {_parent(whole, name)} is no dict.")
    if namer(node)("a.b") == "a.b":  # dots are part of its keys
        return _put(node, undotted(name), item, whole)
    first, _, rest = name.partition(".")
    if first.startswith("%") and not first[1:2].isupper() and not first[1:2].isdigit() and first != "%_":
        raise StructureMismatch(f"{whole}: rename= moves leaves to string keys only, {first!r} stands for another key.")
    key = unescape(first)
    if not rest:
        return _put(node, key, item, whole)
    flat = list(node[1])
    if key in flat[::2]:
        at = flat[::2].index(key) * 2 + 1
        flat[at] = _insert(flat[at], rest, item, whole=whole)
    else:
        flat += [key, _insert(["d", []], rest, item, whole=whole)]
    return [node[0], flat, *node[2:]]


def _parent(whole: str, rest: str) -> str:
    return whole[: len(whole) - len(rest)].rstrip(".") or ROOT


def _put(node: list[Any], key: str, item: Node, whole: str) -> Node:
    if key in node[1][::2]:
        raise StructureMismatch(f"{whole}: rename= gives two leaves this name. Make it one to one.")
    return [node[0], [*node[1], key, item], *node[2:]]
