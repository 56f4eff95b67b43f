"""Scalars in JSON: what JSON cannot say exactly becomes a tagged array.

A node is JSON without objects: ``null``, booleans, strings, integers below 2**53 and arrays. An array is always
``[tag, ...]``; the tags here are ``f`` (float as hex), ``i`` (big integer as hex), ``l`` (list) and ``d`` (dict as
flat key, value, ... list). Rooms above add tags of their own.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from model_checkpoint.errors import ManifestInvalid, UnsupportedType

Node: TypeAlias = bool | int | str | list[Any] | None

DEEPEST = 120  # containers inside each other that are written; each is two arrays of JSON at most
_EXACT = 1 << 53  # every JSON reader keeps integers below this


def pack_number(value: int | float) -> Node:
    """Turn a number into a node that gives back the very same number, NaN and infinities included.

    Example:
        >>> pack_number(0.5), pack_number(7), pack_number(2**80)
        (['f', '0x1.0000000000000p-1'], 7, ['i', '0x100000000000000000000'])
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return ["f", value.hex()]
    return value if -_EXACT < value < _EXACT else ["i", hex(value)]


def unpack_number(node: Node) -> int | float | bool:
    """Give back the number of :func:`pack_number`."""
    if isinstance(node, int):
        return node
    match node:
        case ["f", str(text)]:
            return float.fromhex(text)
        case ["i", str(text)]:
            return int(text, 16)
    raise ManifestInvalid(f"manifest: {node!r} is no number. The manifest is damaged; run `mckpt verify`.")


def pack(value: Any, where: str = "metadata", *, depth: int = 0) -> Node:
    """Turn plain data (None, bool, int, float, str, list, dict with string keys) into a node.

    Example:
        >>> pack({"lr": 0.5, "tags": ["a"]})
        ['d', ['lr', ['f', '0x1.0000000000000p-1'], 'tags', ['l', ['a']]]]
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, float)):
        return pack_number(value)
    if depth >= DEEPEST:
        raise UnsupportedType(
            f"{where}: nested deeper than {DEEPEST} containers. Flatten it, or put it into the state itself."
        )
    if isinstance(value, (list, tuple)):
        return ["l", [pack(item, f"{where}[{i}]", depth=depth + 1) for i, item in enumerate(value)]]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        pairs = ((key, pack(item, f"{where}.{key}", depth=depth + 1)) for key, item in value.items())
        return ["d", [part for pair in pairs for part in pair]]
    raise UnsupportedType(
        f"{where}: metadata and metrics hold plain data (numbers, strings, lists, dicts with string keys), "
        f"got {type(value).__qualname__}. Convert it, or put it into the state itself."
    )


def is_deeper(node: Node, limit: int) -> bool:
    """Tell whether a node has more than ``limit`` arrays inside each other, without following them all the way.

    Example:
        >>> is_deeper(["l", [["l", []]]], 4), is_deeper(["l", [["l", []]]], 3)
        (False, True)
    """
    level = [node] if isinstance(node, list) else []
    for _ in range(limit):
        if not level:
            return False
        level = [item for one in level for item in one if item.__class__ is list]
    return bool(level)


def unpack(node: Node) -> Any:
    """Give back the plain data of :func:`pack` (tuples come back as lists)."""
    if node is None or isinstance(node, (str, bool, int)):
        return node
    if node.__class__ is list and len(node) == 2 and node[1].__class__ is list:
        tag, items = node
        if tag == "l":
            return [unpack(item) for item in items]
        if tag == "d" and len(items) % 2 == 0:
            return {str(key): unpack(item) for key, item in zip(items[::2], items[1::2], strict=True)}
    return unpack_number(node)
