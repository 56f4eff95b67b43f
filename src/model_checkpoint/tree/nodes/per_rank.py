"""Per rank: the trees of many ranks as one, and the tree of one rank taken out of it again.

Where ranks differ, a node ``["per", nodes, choice]`` holds what there is: rank ``r`` has ``nodes[choice[r]]``, or
nothing where that is -1. Mappings and sequences are joined item by item, so that only what really differs is held more
than once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from model_checkpoint.errors import StructureMismatch
from model_checkpoint.manifest import Node
from model_checkpoint.name_lists import some_of
from model_checkpoint.tree.nodes.specs import with_items
from model_checkpoint.tree.nodes.walk import (
    ABSENT,
    ARRAYS,
    CONTAINERS,
    MAPPINGS,
    children,
    damaged,
    items_of,
    leaves,
    tag_of,
)

PER = "per"
_SHOWN = 8
_OPEN: list[Any] = ["?"]


def joined(trees: Sequence[Node]) -> Node:
    """The trees of all ranks, in their order, as one; ``ABSENT`` stands for a rank that has none.

    Example:
        >>> joined([["d", ["step", 7, "seed", 1]], ["d", ["step", 7, "seed", 2]]])
        ['d', ['step', 7, 'seed', ['per', [1, 2], [0, 1]]]]
    """
    first = trees[0]
    if all(_same(tree, first) for tree in trees):
        return first
    there = [tree for tree in trees if tree != ABSENT]
    if _alike(there):
        if len(there) == len(trees):
            return _joined_items(there)
        inner = joined(there)
        if not holds_choice(inner):
            return [PER, [inner], [-1 if tree == ABSENT else 0 for tree in trees]]
    kinds: list[Node] = []
    choice = []
    for tree in trees:
        known = next((i for i, kind in enumerate(kinds) if _same(kind, tree)), -1)
        if known < 0 and tree != ABSENT:
            known = len(kinds)
            kinds.append(tree)
        choice.append(known)
    return [PER, kinds, choice]


def _same(one: Node, other: Node) -> bool:
    """Equal in kind too: True is not 1. By their text, which is sooner made than a large tree is walked."""
    return one is other or msgspec.json.encode(one) == msgspec.json.encode(other)


def _alike(trees: Sequence[Node]) -> bool:
    """Whether containers are of one kind, so that they can be joined item by item."""
    first = trees[0]
    if not isinstance(first, list) or not all(isinstance(tree, list) and tree[:1] == first[:1] for tree in trees):
        return False
    if first[0] in MAPPINGS:
        return all(_same(tree[2:], first[2:]) for tree in trees if isinstance(tree, list))
    if first[0] in ("l", "t"):
        return len({len(tree[1]) for tree in trees if isinstance(tree, list)}) == 1
    if first[0] in ("nt", "dc"):
        return all(_same(tree[1:3], first[1:3]) for tree in trees if isinstance(tree, list))
    rest = [[*tree[:3], *tree[4:]] for tree in trees if isinstance(tree, list)]
    return bool(first[0] == "m" and all(_same(one, rest[0]) for one in rest))


def holds_choice(node: Node) -> bool:
    """Whether a tree has something that differs by rank."""
    pending = [node]
    while pending:
        one = pending.pop()
        if not isinstance(one, list) or not one or one[0] == "a" or one[0] == "v":  # most nodes are arrays
            continue
        if one[0] == PER:
            return True
        pending += one[2:4] if one[0] in ("m", "x") else items_of(one)
    return False


def _joined_items(trees: Sequence[Any]) -> Node:
    first = trees[0]
    if first[0] in MAPPINGS:
        rows = [dict(zip(map(repr, tree[1][::2]), tree[1][1::2], strict=True)) for tree in trees]
        keys = {repr(key): key for tree in trees for key in tree[1][::2]}
        flat = [half for text, key in keys.items() for half in (key, joined([row.get(text, ABSENT) for row in rows]))]
        return [first[0], flat, *first[2:]]
    if first[0] == "m":
        return [*first[:3], joined([tree[3] for tree in trees]), *first[4:]]
    items = [joined(list(same)) for same in zip(*(tree[-1] for tree in trees), strict=True)]
    return [*first[:-1], items]


@dataclass(frozen=True, slots=True)
class RankView:
    """Whose tree is wanted: that of ``rank`` of as many ranks as saved, or of ``source`` where there were others."""

    rank: int = 0
    world_size: int = 1
    program_rank: int = 0  # what the program calls the rank
    source: int | None = None  # the rank of the save whose values to take where ranks differ
    lenient: bool = False  # take what the first rank has that has something, to look at a checkpoint
    wanted: Callable[[str], bool] | None = None  # which leaves anybody asks for, by name; all if there is none


def view_of(tree: Node, saved: int, view: RankView) -> Node:
    """The tree of one rank; raise, and name them, if leaves differ by rank and nobody said whose to take.

    Example:
        >>> view_of(["d", ["seed", ["per", [1, 2], [0, 1]]]], 2, RankView(rank=1, world_size=2))
        ['d', ['seed', 2]]
    """
    if not holds_choice(tree):
        return tree
    own = view.source if view.source is not None else view.rank if view.world_size == saved else None
    open_names: list[str] = []
    if own is not None and not 0 <= own < saved:
        raise StructureMismatch(f"per_rank= gives rank {own}, but {saved} ranks saved. Give one of 0 to {saved - 1}.")
    made = _viewed(tree, "", _chooser(saved, own, view.lenient), open_names)
    open_names = open_names if view.wanted is None else [name for name in open_names if view.wanted(name)]
    if open_names:
        raise StructureMismatch(
            f"{some_of(open_names, most=_SHOWN)}: the {saved} ranks that saved have values of their own there, and "
            f"now there are {view.world_size}, so nobody knows whose this rank is to take. Pass per_rank= (a rank of "
            "the save, or a function from a rank of now to one of the save), or leave these out with parts=[...]."
        )
    return ["d", []] if made == ABSENT else made


def _chooser(saved: int, own: int | None, lenient: bool) -> Callable[[list[Any]], Node]:
    """What a choice comes to; ``_OPEN`` if nobody can tell."""

    def choose(node: list[Any]) -> Node:
        match node:
            case [_, list(kinds), list(choice)] if len(choice) == saved and all(
                type(at) is int and -1 <= at < len(kinds) for at in choice
            ):
                if own is not None:
                    return ABSENT if choice[own] < 0 else kinds[choice[own]]
                return kinds[0] if kinds and (lenient or len(kinds) == 1) else _OPEN
        raise damaged(node)

    return choose


def _viewed(node: Node, name: str, choose: Callable[[list[Any]], Node], open_names: list[str]) -> Node:
    if not isinstance(node, list) or tag_of(node) in ARRAYS:
        return node
    if node[0] == PER:
        chosen = choose(node)
        if chosen is _OPEN:
            open_names.extend(dict.fromkeys(leaf for kind in node[1] for leaf, _ in leaves(kind, name)))
            return ABSENT
        return _viewed(chosen, name, choose, open_names)
    if node[0] not in CONTAINERS or not holds_choice(node):
        return node
    if node[0] == "m":
        return [*node[:3], _viewed(node[3], name, choose, open_names), *node[4:]]
    if node[0] == "x":
        return [*node[:2], _viewed(node[2], name, choose, open_names)]
    return with_items(node, [_viewed(item, place, choose, open_names) for place, item in children(node, name)])
