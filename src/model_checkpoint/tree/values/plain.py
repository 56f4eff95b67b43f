"""Plain: the values of a saved tree that are no arrays, and how a person reads one."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException
from model_checkpoint.manifest import Node
from model_checkpoint.manifest.scalars import unpack_number
from model_checkpoint.tree.nodes.walk import ARRAYS, leaves, tag_of

_LONGEST = 80


def plain_values(tree: Node) -> dict[str, Node]:
    """Return the node of every leaf that is no array, by name.

    Example:
        >>> plain_values(["d", ["epoch", 3, "w", ["a", 0], "sizes", ["t", [1, 2]]]])
        {'epoch': 3, 'sizes.0': 1, 'sizes.1': 2}
    """
    return {name: node for name, node in leaves(tree) if tag_of(node) not in ARRAYS}


def shorten(node: Node) -> str:
    """Return a plain value as short text.

    Example:
        >>> shorten(["f", "0x1.0000000000000p-1"]), shorten(["e", "runs:Mode", "FAST", 1]), shorten(["d", []])
        ('0.5', 'runs:Mode.FAST', '{}')
    """
    try:
        text = _text(node)
    except (CheckpointException, ArithmeticError, ValueError, RecursionError):  # what no save writes, or has no end
        text = "?"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _text(node: Node) -> str:
    match node:
        case None | bool() | int() | str():
            return repr(node)
        case ["f" | "i", *_]:
            return repr(unpack_number(node))
        case ["e", str(cls), str(name), *_]:
            return f"{cls}.{name}"
        case ["d" | "k" | "o", *_]:
            return "{}"
        case ["l" | "t" | "s" | "fs", [*members]]:
            return f"[{', '.join(map(_text, members))}]"
        case [str(tag), *_] if tag.startswith("torch."):
            return " ".join(map(str, node))
    from model_checkpoint.tree.values.values import unpack_value  # brings NumPy, which numbers and texts do without

    return repr(unpack_value(node))
