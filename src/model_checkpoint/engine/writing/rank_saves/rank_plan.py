"""Rank plan: what one of many ranks writes of states of one structure, planned once and bound to each state.

Every rank plans by itself and comes to the same result, since all know the same of all arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from model_checkpoint.engine.ranks.pooling import own_arrays
from model_checkpoint.engine.ranks.structure import ArraySign, Structure
from model_checkpoint.engine.root.rank_manifests import piece_stored_shape
from model_checkpoint.engine.writing.rank_saves.box_source import BoxPlace, BoxSource
from model_checkpoint.format.stored import tensor_bytes
from model_checkpoint.manifest import Layout
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.plan.sharding.share_out import PlannedArray, Share, share_out
from model_checkpoint.state import Leaf, Source


class LayoutTable:
    """The layouts of all arrays of a pool, each once, and the number of each array's."""

    def __init__(self, signs: Sequence[ArraySign]) -> None:
        self.layouts: list[Layout] = []
        self.placed: list[int] = []
        by_id: dict[int, int] = {}
        by_value: dict[Layout, int] = {}
        for sign in signs:
            layout = sign.layout or Layout()
            number = by_id.get(id(layout))  # most arrays share one object: comparing the ranks of a mesh takes long
            if number is None:
                number = by_id[id(layout)] = by_value.setdefault(layout, len(self.layouts))
                if number == len(self.layouts):
                    self.layouts.append(layout)
            self.placed.append(number)


@dataclass(frozen=True, slots=True)
class PlannedPiece:
    """A box that a rank writes: which of its own arrays it is of, and what it is called."""

    leaf: int  # of the rank's state
    part: int  # of the leaf, where the rank has several
    place: BoxPlace
    name: str
    stored_shape: tuple[int, ...] | None

    @property
    def whole(self) -> bool:
        """Whether the box is all that the rank has there."""
        return self.place.start == 0 and self.place.box.sizes == self.place.shape


@dataclass(slots=True, eq=False)
class RankPlan:
    """What one rank writes of any state of one structure."""

    signs: Sequence[ArraySign]  # of all arrays, whoever has them
    table: LayoutTable
    shares: Sequence[Share]
    pieces: Sequence[PlannedPiece]
    _origins: Sequence[tuple[int, int, BoxPlace | None]] = field(init=False)  # which part of which leaf each is of

    def __post_init__(self) -> None:
        self._origins = [(one.leaf, one.part, None if one.whole else one.place) for one in self.pieces]

    def sources(self, leaves: Sequence[Leaf]) -> list[Source]:
        """Where the bytes of each piece are in one state."""
        made: list[Source] = []
        for leaf, part, place in self._origins:
            sharding = leaves[leaf].sharding
            source = leaves[leaf].source if sharding is None else sharding.arrays[part].source
            made.append(source if place is None else BoxSource(source, place))
        return made

    def bind(self, leaves: Sequence[Leaf], sources: Sequence[Source]) -> list[Leaf]:
        """The boxes of one state as leaves of their own."""
        made = []
        for piece, source in zip(self.pieces, sources, strict=True):
            leaf = leaves[piece.leaf]
            made.append(
                Leaf(
                    piece.name,
                    leaf.kind,
                    leaf.dtype,
                    piece.place.box.sizes,
                    leaf.stored,
                    piece.stored_shape,
                    source,
                    leaf.alignment,
                    leaf.attributes,
                    leaf.frozen,
                )
            )
        return made


def plan_rank(structure: Structure, signs: Sequence[ArraySign], rank: int) -> RankPlan:
    """Plan what a rank writes; the first piece of an array has its name."""
    table = LayoutTable(signs)
    items = [element_bytes(sign) for sign in signs]
    arrays = [PlannedArray(sign.shape, *both) for sign, *both in zip(signs, items, table.placed, strict=True)]
    shares = share_out(arrays, table.layouts, rank)
    own = own_arrays(structure, signs, rank)
    return RankPlan(signs, table, shares, _pieces(structure, signs, items, shares, own))


def _pieces(
    structure: Structure,
    signs: Sequence[ArraySign],
    items: Sequence[int],
    shares: Sequence[Share],
    own: Mapping[int, int],
) -> list[PlannedPiece]:
    made: list[PlannedPiece] = []
    counts: Counter[int] = Counter()
    for share in shares:
        sign, leaf = signs[share.array], own[share.array]
        suffix = f"%p{counts[share.array]}" if counts[share.array] else ""
        counts[share.array] += 1
        place = BoxPlace(_local_shape(structure, leaf, share.part), items[share.array], _inner(share))
        stored = piece_stored_shape(sign.shape, sign.stored_shape, share.box.sizes)
        made.append(PlannedPiece(leaf, share.part, place, sign.name + suffix, stored))
    return made


def _inner(share: Share) -> ArrayBox:
    return ArrayBox(share.local, share.box.sizes)


def _local_shape(structure: Structure, leaf: int, part: int) -> tuple[int, ...]:
    """The shape of what the rank itself has."""
    sign = structure.signs[leaf]
    return sign.shape if sign.layout is None else structure.table.shapes[leaf][part]


def element_bytes(sign: ArraySign) -> int:
    """Bytes of one element of an array as it is stored."""
    elements = ArrayBox((), sign.shape).elements
    nbytes = tensor_bytes(sign.stored, sign.shape if sign.stored_shape is None else sign.stored_shape)
    return nbytes // elements if nbytes and elements else 1
