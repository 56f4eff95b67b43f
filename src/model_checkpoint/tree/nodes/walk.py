"""Walk: the leaves of a tree with their names; the one place that decides what a leaf is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from model_checkpoint.errors import ManifestInvalid
from model_checkpoint.manifest import Node
from model_checkpoint.tree.nodes.names import dotted, final, join, segment, stay_dotted

T = TypeVar("T")

ABSENT = ["-"]  # stands for a list item that was not selected
MAPPINGS = frozenset("dko")
ARRAYS = frozenset("av")
CONTAINERS = frozenset(("d", "k", "o", "l", "t", "nt", "dc", "m", "x"))
DEEPEST = 128  # nodes inside each other; a save writes fewer


def tag_of(node: Node) -> str:
    """Return the tag of a node ("" for a plain scalar)."""
    if not isinstance(node, list):
        return ""
    if not node or not isinstance(node[0], str):
        raise damaged(node)
    return node[0]


def damaged(node: Any) -> ManifestInvalid:
    """Return the error for a node that no save has written."""
    return ManifestInvalid(f"tree: {str(node)[:80]} is no node. The manifest is damaged; run `mckpt verify`.")


def namer(node: list[Any]) -> Callable[[Node], str]:
    """Return how the keys of a mapping node are named."""
    free = node[0] == "k" or (node[0] == "o" and len(node) > 2 and node[2] is True)
    return _dotted if free else segment


def _dotted(key: Node) -> str:
    return dotted(key) if isinstance(key, str) else segment(key)


def children(node: list[Any], prefix: str) -> list[tuple[str, Node]]:
    """Return the (name, node) pairs right under a container; atoms, sets and arrays have none."""
    match node:
        case ["d" | "k" | "o", list(flat), *_] if len(flat) % 2 == 0:
            return list(zip(_named(node, flat[::2], f"{prefix}." if prefix else ""), flat[1::2], strict=True))
        case ["l" | "t", list(items)]:
            return [(join(prefix, str(i)), item) for i, item in enumerate(items)]
        case ["nt" | "dc", str(), list(names), list(items)] if len(names) == len(items):
            return [(join(prefix, segment(name)), item) for name, item in zip(names, items, strict=True)]
        case ["m", "optimizer", str(), ["d", list() as flat] as inner, list(params)] if _sound(flat, params):
            return _optimizer(inner, prefix, params)
        case ["m", str(), str(), inner]:
            return [(prefix, inner)]
        case ["x", str(), inner]:
            return [(prefix, inner)]
        case ["d" | "k" | "o" | "l" | "t" | "nt" | "dc" | "m" | "x", *_]:
            raise damaged(node)
    return []


def _named(node: list[Any], keys: list[Node], start: str) -> list[str]:
    """Return the names of the keys of a mapping node under ``start``, told of all at once where none is escaped."""
    name = namer(node)
    if name is _dotted and {*map(type, keys)} == {str} and stay_dotted(cast("list[str]", keys)):
        return [start + key for key in cast("list[str]", keys)]
    return [start + (key if key.__class__ is str and key.isidentifier() else name(key)) for key in keys]


def _optimizer(inner: list[Any], prefix: str, params: list[Any]) -> list[tuple[str, Node]]:
    """Name the state of each parameter after the parameter, where its name is known."""
    pairs: list[tuple[str, Node]] = []
    for name, part in children(inner, prefix):
        under = children(part, name) if isinstance(part, list) and part and part[0] == "d" else []
        if name != join(prefix, "state") or not under or not isinstance(part, list):
            pairs.append((name, part))
            continue
        for key, (plain, item) in zip(part[1][::2], under, strict=True):
            known = _param_name(params, key)
            pairs.append((plain if known is None else join(name, known), item))
    return pairs


def _sound(flat: list[Any], params: list[Any]) -> bool:
    """Tell whether an optimizer node has pairs, and [name or None, shape] for each parameter."""
    return len(flat) % 2 == 0 and all(
        isinstance(one, list)
        and len(one) == 2
        and (one[0] is None or isinstance(one[0], str))
        and isinstance(one[1], list)
        for one in params
    )


def _param_name(params: list[Any], key: Node) -> str | None:
    if type(key) is not int or not 0 <= key < len(params):
        return None
    name: str | None = params[key][0]
    return name


def leaves(node: Node, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Node]]:
    """Yield (name, node) of every array and every atomic value, in order; an empty container is a value too."""
    if depth > DEEPEST:
        raise damaged("nesting deeper than any save writes")
    if not isinstance(node, list) or tag_of(node) in ARRAYS:
        yield final(prefix), node
        return
    under = children(node, prefix)
    if not under:
        yield final(prefix), node
    for name, item in under:
        if not isinstance(item, list) or tag_of(item) in ARRAYS:
            yield final(name), item
        elif item != ABSENT:
            yield from leaves(item, name, depth + 1)


def places(node: Node, wanted: Mapping[int, T]) -> list[tuple[str, T]]:
    """Return (name of its place, what is wanted of it) for each node that is wanted by its identity, in order."""
    found: list[tuple[str, T]] = []
    pending: list[tuple[str, Node]] = [("", node)]
    while pending:
        prefix, one = pending.pop()
        if not isinstance(one, list) or one[0] in ARRAYS:
            continue
        if id(one) in wanted:
            found.append((prefix, wanted[id(one)]))
        pending.extend(reversed(children(one, prefix)))
    return found


def plain_names(node: Node) -> list[str]:
    """Return the name of every leaf that is no array, in order, without the cost of naming the arrays."""
    found: list[str] = []
    pending: list[tuple[str, Node]] = [("", node)]
    while pending:
        name, item = pending.pop()
        under = children(item, name) if isinstance(item, list) and not _holds_arrays(item) else []
        if under:
            pending.extend(reversed(under))
        elif item != ABSENT and not (isinstance(item, list) and (tag_of(item) in ARRAYS or _holds_arrays(item))):
            found.append(final(name))
    return found


def _holds_arrays(node: list[Any]) -> bool:
    """Tell whether a container holds arrays and nothing else (not even nothing)."""
    items = items_of(node) if tag_of(node) in CONTAINERS else []
    return bool(items) and all(isinstance(item, list) and bool(item) and item[0] in ("a", "v") for item in items)


def array_nodes(node: Node, depth: int = 0) -> list[list[Any]]:
    """Return the node of every array leaf in order, without the cost of their names; refuses a wrong form."""
    if depth > DEEPEST:
        raise damaged("nesting deeper than any save writes")
    tag = tag_of(node)
    if not isinstance(node, list) or tag not in CONTAINERS:
        return [node] if isinstance(node, list) and tag in ARRAYS else []
    found: list[list[Any]] = []
    for item in items_of(node):
        if isinstance(item, list) and item:
            if item[0] == "a" or item[0] == "v":
                found.append(item)
                continue
            found += array_nodes(item, depth + 1)
    return found


def items_of(node: list[Any]) -> list[Node]:
    """Return the nodes right under a container."""
    match node:
        case ["d" | "k" | "o", list(flat), *_] if len(flat) % 2 == 0:
            return flat[1::2]
        case ["l" | "t", list(items)]:
            return items
    return [item for _, item in children(node, "")]


def arrays(node: Node) -> list[tuple[str, list[Any]]]:
    """Return (name, node) of every array leaf in order."""
    found: list[tuple[str, list[Any]]] = []
    _collect([("", node)], found, 0)
    return found


def _collect(nodes: list[tuple[str, Node]], found: list[tuple[str, list[Any]]], depth: int) -> None:
    if depth > DEEPEST:
        raise damaged("nesting deeper than any save writes")
    for name, node in nodes:
        if isinstance(node, list):
            tag = tag_of(node)
            if tag in ARRAYS:
                found.append((final(name), node))
            elif tag in CONTAINERS:
                _collect(children(node, name), found, depth + 1)
