"""Pooling: what one rank has to say of its state, and what all ranks make of it: one tree, one list of arrays.

Each rank sends one digest for each part of its state. A part that all have alike is settled by that: what it holds is
held by all. Only parts that differ are sent, and joined leaf by leaf; what differs stays, once for each rank it is of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from model_checkpoint.engine.ranks.structure import WHOLE, ArraySign, Structure, part_place, renumbered
from model_checkpoint.errors import StructureMismatch
from model_checkpoint.manifest import HeldRegion, Layout, Node, Placement
from model_checkpoint.plan.sharding.holders import replicated
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.plan.sharding.tiling import tiles
from model_checkpoint.tree.nodes.per_rank import joined
from model_checkpoint.tree.nodes.rank_zero import told_once
from model_checkpoint.tree.nodes.walk import ABSENT


@dataclass(frozen=True, slots=True)
class RankState:
    """The state of one rank, with digests of what other ranks may have too."""

    structure: Structure
    signs: Sequence[ArraySign]

    def told(self, names: Sequence[str]) -> dict[str, Any]:
        """All there is to say of some parts."""
        parts = {name: self.structure.parts[name] for name in names if name in self.structure.parts}
        used = sorted({number for part in parts.values() for number in part.arrays})
        place = {number: i for i, number in enumerate(used)}
        nodes = {name: renumbered(part.node, place) for name, part in parts.items()}
        zero = [name for part in parts.values() for name in part.of_rank_zero]
        return {"parts": nodes, "signs": [self.signs[number] for number in used], "of_rank_zero": zero}


def rank_state(structure: Structure, contents: Mapping[int, str]) -> RankState:
    """A state of a structure; ``contents`` are the digests of its arrays, by their numbers."""
    signs = list(structure.signs)
    for number, digest in contents.items():
        signs[number] = msgspec.structs.replace(signs[number], digest=digest)
    return RankState(structure, signs)


class Settled(NamedTuple):
    """The arrays of the parts that all ranks have alike."""

    signs: Sequence[ArraySign]
    place: Mapping[int, int]  # which of them each of this rank's arrays is
    known: Mapping[str, int]  # their numbers by their names


def differing(digests: Sequence[Mapping[str, str]]) -> list[str]:
    """The parts that ranks do not have alike, or of which no rank can tell alone."""
    names = list(dict.fromkeys(name for one in digests for name in one))
    return [name for name in names if len({one.get(name) for one in digests}) > 1 or not digests[0].get(name)]


def settled(structure: Structure, pooled: Sequence[str], world: int) -> Settled:
    """The arrays of the parts that all ranks have alike, and which of this rank's they are."""

    def find() -> Settled:
        rest = [part for name, part in structure.parts.items() if name not in pooled]
        used = sorted({number for part in rest for number in part.arrays})
        everyone = replicated(range(world))
        signs = [_settled(structure.signs[number], everyone) for number in used]
        place = {number: i for i, number in enumerate(used)}
        return Settled(signs, place, {sign.name: i for i, sign in enumerate(signs)})

    return structure.once(("settled", *pooled), find)


def _settled(sign: ArraySign, everyone: Layout) -> ArraySign:
    return sign if sign.layout is not None else msgspec.structs.replace(sign, layout=everyone)


def pool_parts(details: Sequence[Mapping[str, Any]], names: Sequence[str], known: Mapping[str, int]) -> dict[str, Any]:
    """Rank 0: join what all ranks told of some parts; ``known`` arrays have their numbers, the others follow."""
    pooled: dict[tuple[Any, ...], _PooledArray] = {}
    trees: dict[str, list[Node]] = {name: [] for name in names}
    told = [msgspec.convert(detail["signs"], list[ArraySign]) for detail in details]
    contents = _contents(told)
    once: dict[str, Node] = {}
    for rank, (detail, signs) in enumerate(zip(details, told, strict=True)):
        numbers = {i: _number(sign, rank, pooled, known, contents) for i, sign in enumerate(signs)}
        for name in names:
            node = told_once(detail["parts"].get(name, ABSENT), part_place(name), detail["of_rank_zero"], once)
            trees[name].append(node if node == ABSENT else renumbered(node, numbers))
    arrays = sorted(pooled.values(), key=lambda one: one.number)
    layouts: dict[_Marked, Layout] = {}
    return {
        "parts": {name: joined(nodes) for name, nodes in trees.items()},
        "signs": [one.finished(layouts) for one in arrays],
    }


def _contents(told: Sequence[Sequence[ArraySign]]) -> dict[tuple[str, tuple[int, ...]], tuple[str, ...]]:
    """What each mesh holds of an array, rank by rank: two meshes that hold the same are copies of each other."""
    meshes = {(s.name, s.layout.ranks) for signs in told for s in signs if s.layout is not None and not s.open}
    if not meshes:
        return {}
    digests = {(sign.name, rank): sign.digest for rank, signs in enumerate(told) for sign in signs}
    return {(name, ranks): tuple(digests.get((name, rank), "") for rank in ranks) for name, ranks in meshes}


_Box = tuple[tuple[int, ...], tuple[int, ...]]
_Marked = tuple[tuple[int, ...], tuple[tuple[_Box, tuple[int, ...]], ...]]  # a shape, and who has which box of it


@dataclass(slots=True)
class _PooledArray:
    number: int
    sign: ArraySign
    ranks: list[int]
    regions: dict[_Box, list[int]]
    meshes: dict[tuple[int, ...], Layout]

    def finished(self, layouts: dict[_Marked, Layout]) -> ArraySign:
        """The array with the layout that all ranks together give it; ``layouts`` are those found before."""
        layout = self.sign.layout
        if layout is None:
            layout = replicated(self.ranks)
        elif not self.sign.open:
            layout = _copies(list(self.meshes.values()))
        else:  # in order, so that each rank's are in the order of its own parts
            regions = tuple([(box, tuple(ranks)) for box, ranks in sorted(self.regions.items())])
            key = (self.sign.shape, regions)
            if key not in layouts:
                layouts[key] = self._tiled(regions)
            layout = layouts[key]
        # told apart by its digest, so that this is of no use any more
        return msgspec.structs.replace(self.sign, digest="", layout=layout)

    def _tiled(self, regions: Sequence[tuple[_Box, tuple[int, ...]]]) -> Layout:
        boxes = [ArrayBox(*box) for box, _ in regions]
        if not tiles(self.sign.shape, boxes):
            raise StructureMismatch(
                f"{self.sign.name}: the parts that the ranks marked with Shard do not make up an array of shape "
                f"{list(self.sign.shape)}: {[(list(b.offsets), list(b.sizes)) for b in boxes[:8]]}. "
                "Each element must be in one part, or in equal parts of several ranks."
            )
        return Layout(regions=tuple(HeldRegion(*box, ranks) for box, ranks in regions))


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


def pool_signs(
    structure: Structure, pooled: Sequence[str], told: Mapping[str, Any] | None, world: int
) -> list[ArraySign]:
    """All arrays, settled and pooled, as every rank puts them together for itself."""
    more = [] if told is None else msgspec.convert(told["signs"], list[ArraySign])
    return [*settled(structure, pooled, world).signs, *more]


def own_arrays(structure: Structure, signs: Sequence[ArraySign], rank: int) -> dict[int, int]:
    """Which of this rank's arrays each of the pool's is, where the rank has a part of it."""
    mine = {sign.name: i for i, sign in enumerate(structure.signs)}
    return {
        number: mine[sign.name]
        for number, sign in enumerate(signs)
        if sign.name in mine and sign.layout is not None and _is_of(sign.layout, rank)
    }


def _is_of(layout: Layout, rank: int) -> bool:
    return any(rank in region.ranks for region in layout.regions) if layout.regions else rank in layout.ranks


def pool_tree(structure: Structure, pooled: Sequence[str], told: Mapping[str, Any] | None, world: int) -> Node:
    """The tree over all arrays, for the manifest."""
    place = settled(structure, pooled, world).place
    parts: dict[str, Node] = {}
    for name, part in structure.parts.items():
        if name not in pooled:
            parts[name] = renumbered(part.node, {number: place[number] for number in part.arrays})
    parts |= {name: told["parts"][name] for name in pooled} if told is not None else {}
    if list(parts) == [WHOLE] and WHOLE in structure.parts:
        return parts[WHOLE]
    own = structure.parts
    order = [*(name for name in own if name in parts), *(name for name in parts if name not in own)]
    return ["d", [half for name in order for half in (name, parts[name])]]
