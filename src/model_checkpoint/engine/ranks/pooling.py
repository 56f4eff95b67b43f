"""Pooling: what one rank has to say of its state, and what all ranks make of it: one tree, one list of arrays.

Each rank sends one digest for each part of its state. A part that all have alike is settled by that: what it holds is
held by all. Only parts that differ are sent, and joined leaf by leaf; what differs stays, once for each rank it is of.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import xxhash

from model_checkpoint.errors import StructureMismatch
from model_checkpoint.manifest import HeldRegion, Layout, Node, Placement
from model_checkpoint.plan.sharding.holders import replicated
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.plan.sharding.tiling import tiles
from model_checkpoint.state import Flat, Leaf
from model_checkpoint.tree.nodes.per_rank import joined
from model_checkpoint.tree.nodes.walk import ABSENT, array_nodes

_WHOLE = ""  # the only part of a state that is no dict


class ArraySign(msgspec.Struct, frozen=True, array_like=True):
    """What is known of one array before anybody has read it from the medium."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    stored: str
    stored_shape: tuple[int, ...] | None
    alignment: int
    attributes: Node
    frozen: bool
    digest: str = ""  # of its bytes, if it is whole, or of what this rank has, if only some ranks know of it
    layout: Layout | None = None  # if it lies on many ranks
    open: bool = False  # the layout has only the regions of one rank


@dataclass(frozen=True, slots=True)
class RankState:
    """The state of one rank, taken apart by its parts."""

    parts: Mapping[str, Node]  # array nodes have numbers of the list below
    signs: Sequence[ArraySign]

    def digests(self) -> dict[str, str]:
        """A digest of each part; empty for one that must be pooled in any case."""
        names = {i: sign.name for i, sign in enumerate(self.signs)}
        return {name: self._digest(node, names) for name, node in self.parts.items()}

    def _digest(self, node: Node, names: Mapping[int, str]) -> str:
        used = [self.signs[one[1]] for one in array_nodes(node)]
        if any(sign.open for sign in used):
            return ""
        data = msgspec.json.encode([_renumbered(node, names), used])
        return xxhash.xxh3_128_hexdigest(data)

    def told(self, names: Sequence[str]) -> dict[str, Any]:
        """All there is to say of some parts."""
        used = sorted({one[1] for name in names if name in self.parts for one in array_nodes(self.parts[name])})
        place = {number: i for i, number in enumerate(used)}
        parts = {name: _renumbered(self.parts[name], place) for name in names if name in self.parts}
        return {"parts": parts, "signs": [self.signs[number] for number in used]}


def _renumbered(node: Node, numbers: Mapping[int, Any]) -> Node:
    made = copy.deepcopy(node)
    for one in array_nodes(made):
        one[1] = numbers[one[1]]
    return made


def rank_state(flat: Flat, digests: Mapping[int, str], layouts: Mapping[int, Layout]) -> RankState:
    """Describe a state; ``digests`` of its whole arrays, ``layouts`` of those on many ranks, by their numbers."""
    signs = [_sign(leaf, digests.get(i, ""), layouts.get(i)) for i, leaf in enumerate(flat.leaves)]
    tree = flat.tree
    if isinstance(tree, list) and tree[0] == "d" and all(isinstance(key, str) for key in tree[1][::2]):
        return RankState(dict(zip(tree[1][::2], tree[1][1::2], strict=True)), signs)
    return RankState({_WHOLE: tree}, signs)


def _sign(leaf: Leaf, digest: str, layout: Layout | None) -> ArraySign:
    return ArraySign(
        name=leaf.name,
        kind=leaf.kind,
        dtype=leaf.dtype,
        shape=leaf.shape,
        stored=leaf.stored,
        stored_shape=leaf.stored_shape,
        alignment=leaf.alignment,
        attributes=leaf.attributes,
        frozen=leaf.frozen,
        digest=digest,
        layout=layout,
        open=leaf.sharding is not None and not leaf.sharding.declared,
    )


@dataclass(frozen=True, slots=True)
class Pool:
    """What all ranks have agreed on: the arrays in their order, each with a layout, and the tree over them."""

    tree: Node
    signs: Sequence[ArraySign]

    def own(self, state: RankState, rank: int) -> dict[int, int]:
        """Which of this rank's arrays each of the pool's is, where the rank has a part of it."""
        mine = {sign.name: i for i, sign in enumerate(state.signs)}
        return {
            number: mine[sign.name]
            for number, sign in enumerate(self.signs)
            if sign.name in mine and sign.layout is not None and _is_of(sign.layout, rank)
        }


def _is_of(layout: Layout, rank: int) -> bool:
    return any(rank in region.ranks for region in layout.regions) if layout.regions else rank in layout.ranks


def differing(digests: Sequence[Mapping[str, str]]) -> list[str]:
    """The parts that ranks do not have alike, or of which no rank can tell alone."""
    names = list(dict.fromkeys(name for one in digests for name in one))
    return [name for name in names if len({one.get(name) for one in digests}) > 1 or not digests[0].get(name)]


def settled_signs(state: RankState, pooled: Sequence[str], world: int) -> tuple[list[ArraySign], dict[int, int]]:
    """The arrays of the parts that all ranks have alike, and which of this rank's they are."""
    rest = [node for name, node in state.parts.items() if name not in pooled]
    used = sorted({one[1] for node in rest for one in array_nodes(node)})
    everyone = replicated(range(world))
    signs = [_settled(state.signs[number], everyone) for number in used]
    return signs, {number: i for i, number in enumerate(used)}


def _settled(sign: ArraySign, everyone: Layout) -> ArraySign:
    return sign if sign.layout is not None else msgspec.structs.replace(sign, layout=everyone)


def pool_parts(details: Sequence[Mapping[str, Any]], names: Sequence[str], known: Mapping[str, int]) -> dict[str, Any]:
    """Rank 0: join what all ranks told of some parts; ``known`` arrays have their numbers, the others follow."""
    pooled: dict[tuple[Any, ...], _PooledArray] = {}
    trees: dict[str, list[Node]] = {name: [] for name in names}
    told = [[msgspec.convert(sign, ArraySign) for sign in detail["signs"]] for detail in details]
    contents = _contents(told)
    for rank, (detail, signs) in enumerate(zip(details, told, strict=True)):
        numbers = {i: _number(sign, rank, pooled, known, contents) for i, sign in enumerate(signs)}
        for name in names:
            node = detail["parts"].get(name, ABSENT)
            trees[name].append(node if node == ABSENT else _renumbered(node, numbers))
    arrays = sorted(pooled.values(), key=lambda one: one.number)
    return {
        "parts": {name: joined(nodes) for name, nodes in trees.items()},
        "signs": [one.finished() for one in arrays],
    }


def _contents(told: Sequence[Sequence[ArraySign]]) -> dict[tuple[str, tuple[int, ...]], tuple[str, ...]]:
    """What each mesh holds of an array, rank by rank: two meshes that hold the same are copies of each other."""
    digests = {(sign.name, rank): sign.digest for rank, signs in enumerate(told) for sign in signs}
    meshes = {(sign.name, sign.layout.ranks) for signs in told for sign in signs if sign.layout is not None}
    return {(name, ranks): tuple(digests.get((name, rank), "") for rank in ranks) for name, ranks in meshes}


@dataclass(slots=True)
class _PooledArray:
    number: int
    sign: ArraySign
    ranks: list[int]
    regions: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]]
    meshes: dict[tuple[int, ...], Layout]

    def finished(self) -> ArraySign:
        """The array with the layout that all ranks together give it."""
        if self.sign.layout is None:
            return msgspec.structs.replace(self.sign, layout=replicated(self.ranks))
        if not self.sign.open:
            return msgspec.structs.replace(self.sign, layout=_copies(list(self.meshes.values())))
        boxes = [ArrayBox(*box) for box in self.regions]
        if not tiles(self.sign.shape, boxes):
            raise StructureMismatch(
                f"{self.sign.name}: the parts that the ranks marked with Shard do not make up an array of shape "
                f"{list(self.sign.shape)}: {[(list(b.offsets), list(b.sizes)) for b in boxes[:8]]}. "
                "Each element must be in one part, or in equal parts of several ranks."
            )
        # in order, so that each rank's are in the order of its own parts
        regions = tuple(HeldRegion(*box, tuple(ranks)) for box, ranks in sorted(self.regions.items()))
        return msgspec.structs.replace(self.sign, layout=Layout(regions=regions))


def _copies(meshes: Sequence[Layout]) -> Layout:
    """The layout of an array that several meshes hold alike."""
    first = meshes[0]
    if len(meshes) == 1:
        return first
    return msgspec.structs.replace(
        first,
        mesh=(len(meshes), *first.mesh),
        ranks=tuple(rank for mesh in meshes for rank in mesh.ranks),
        placements=(Placement(), *first.placements),
        names=("", *first.names) if first.names else (),
    )


def _number(
    sign: ArraySign,
    rank: int,
    pooled: dict[tuple[Any, ...], _PooledArray],
    known: Mapping[str, int],
    contents: Mapping[tuple[str, tuple[int, ...]], tuple[str, ...]],
) -> int:
    if sign.name in known:
        return known[sign.name]
    key: tuple[Any, ...] = (sign.name, sign.kind, sign.dtype, sign.shape, repr(sign.attributes))
    if sign.layout is None:
        key += (sign.digest,)
    elif not sign.open:
        lies = msgspec.structs.replace(sign.layout, ranks=())
        held = contents[sign.name, sign.layout.ranks]
        key += (lies, held) if all(held) else (lies, sign.layout.ranks)
    one = pooled.get(key)
    if one is None:
        one = pooled[key] = _PooledArray(len(known) + len(pooled), sign, [], {}, {})
    one.ranks.append(rank)
    if sign.layout is not None and not sign.open:
        one.meshes.setdefault(sign.layout.ranks, sign.layout)
    if sign.open and sign.layout is not None:
        for region in sign.layout.regions:
            one.regions.setdefault((region.offsets, region.sizes), []).append(rank)
    return one.number


def make_pool(state: RankState, pooled: Sequence[str], told: Mapping[str, Any] | None, world: int) -> Pool:
    """Put settled and pooled parts together, as every rank does for itself."""
    signs, place = settled_signs(state, pooled, world)
    if told is not None:
        signs += [msgspec.convert(sign, ArraySign) for sign in told["signs"]]
    parts: dict[str, Node] = {}
    for name, node in state.parts.items():
        if name not in pooled:
            parts[name] = _renumbered(node, place)
    parts |= {name: told["parts"][name] for name in pooled} if told is not None else {}
    if list(parts) == [_WHOLE] and _WHOLE in state.parts:
        return Pool(parts[_WHOLE], signs)
    order = [*(name for name in state.parts if name in parts), *(name for name in parts if name not in state.parts)]
    return Pool(["d", [half for name in order for half in (name, parts[name])]], signs)
