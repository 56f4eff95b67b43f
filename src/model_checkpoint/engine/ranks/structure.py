"""Structure: what the state of a rank looks like, whatever its bytes are; found out once and kept while it stays so.

To take apart what thousands of arrays are takes longer than to write small ones. What was found out for a state, and
what was planned for it, is good for the next one of the same names, shapes and layouts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import xxhash

from model_checkpoint import forks
from model_checkpoint.engine.ranks.layout_inference import misfits
from model_checkpoint.manifest import Layout, Node
from model_checkpoint.state import Flat, Leaf
from model_checkpoint.tree.nodes.names import segment
from model_checkpoint.tree.nodes.rank_zero import told_once
from model_checkpoint.tree.nodes.walk import array_nodes

T = TypeVar("T")

WHOLE = ""  # the only part of a state that is no dict
_KEPT = 4  # structures of this process, each of which may be large

_FIELDS = [field for field in Leaf._fields if field not in ("source", "attributes", "sharding")]
_plain_fields = itemgetter(*map(Leaf._fields.index, _FIELDS))


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


msgspec.json.Decoder(ArraySign)  # looks at its fields now: ranks that are threads must not be the first to


class PartStructure(NamedTuple):
    """One part of a state."""

    node: Node
    text: bytes  # of the node, but for what is of rank 0
    digest: str  # of all but bytes; empty for a part that must be pooled in any case
    arrays: tuple[int, ...]  # the numbers of its arrays
    of_rank_zero: tuple[str, ...] = ()  # names of what is nobody's own


class LeafTable(NamedTuple):
    """What tells the leaves of a state from others, but for their bytes.

    Column by column: every save compares its own with the one before, of thousands of leaves.
    """

    plain: Sequence[tuple[Any, ...]]
    remarks: Sequence[bytes | None]
    layouts: Sequence[Layout | None]
    shapes: Sequence[Sequence[tuple[int, ...]]]  # of what this rank has of an array that lies on many
    declared: Sequence[bool]

    @classmethod
    def of(cls, leaves: Sequence[Leaf]) -> LeafTable:
        """The table of some leaves."""
        shardings = [leaf.sharding for leaf in leaves]
        return cls(
            list(map(_plain_fields, leaves)),
            [None if leaf.attributes is None else msgspec.json.encode(leaf.attributes) for leaf in leaves],
            [None if one is None else one.layout for one in shardings],
            [() if one is None else [part.shape for part in one.arrays] for one in shardings],
            [one is None or one.declared for one in shardings],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """What a state looks like, and what was found out for states that look like it."""

    table: LeafTable
    signs: Sequence[ArraySign]
    misfits: Mapping[str, list[str]]
    parts: Mapping[str, PartStructure]
    found: dict[Any, Any] = field(default_factory=dict)

    def digests(self, contents: Mapping[int, str]) -> dict[str, str]:
        """A digest of each part with its bytes, as far as those are in ``contents``; empty for one to be pooled."""
        made = {}
        for name, part in self.parts.items():
            inner = "".join([contents[number] for number in part.arrays if number in contents])
            both = xxhash.xxh3_128_hexdigest((part.digest + inner).encode()) if inner else part.digest
            made[name] = both if part.digest else ""
        return made

    def once(self, key: Any, find: Callable[[], T]) -> T:
        """What ``find`` returned when it was first asked for ``key``."""
        if key not in self.found:
            self.found[key] = find()
        return cast("T", self.found[key])


_kept: OrderedDict[Any, Structure] = OrderedDict()
_guard = forks.lock()


def structure_of(flat: Flat, rank: int, world: int) -> Structure:
    """The structure of a state of one rank."""
    table = LeafTable.of(flat.leaves)
    key = (rank, world, len(flat.leaves), flat.leaves[0].name if flat.leaves else "")
    with _guard:
        known = _kept.get(key)
    if known is None or known.table != table:
        known = Structure(table, [_sign(leaf) for leaf in flat.leaves], _misfits(flat, rank), {})
    parts = _parts(flat, known)
    same = _holdings(parts) == _holdings(known.parts)
    made = replace(known, parts=parts, found=known.found if same else {})
    with _guard:
        _kept[key] = made
        _kept.move_to_end(key)
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return made


def _holdings(parts: Mapping[str, PartStructure]) -> dict[str, tuple[int, ...]]:
    return {name: part.arrays for name, part in parts.items() if part.arrays}


def _misfits(flat: Flat, rank: int) -> dict[str, list[str]]:
    laid = [(leaf.shape, leaf.sharding) for leaf in flat.leaves if leaf.sharding is not None]
    return misfits([(shape, one.layout, [part.shape for part in one.arrays]) for shape, one in laid], rank)


def _sign(leaf: Leaf) -> ArraySign:
    sharding = leaf.sharding
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
        layout=None if sharding is None else sharding.layout,
        open=sharding is not None and not sharding.declared,
    )


def _parts(flat: Flat, known: Structure) -> dict[str, PartStructure]:
    made = {}
    for name, node in _nodes(flat.tree).items():
        zero = _inside(flat.of_rank_zero, name)
        shared = told_once(node, part_place(name), zero, dict.fromkeys(zero)) if zero else node
        text, before = msgspec.json.encode(shared), known.parts.get(name)
        if before is not None and before.text == text:
            made[name] = before._replace(node=node, of_rank_zero=zero)
            continue
        arrays = tuple(one[1] for one in array_nodes(node))
        made[name] = PartStructure(node, text, _digest(shared, arrays, known.signs), arrays, zero)
    return made


def part_place(name: str) -> str:
    """What the names of all that is in a part begin with."""
    return WHOLE if name == WHOLE else segment(name)


def _inside(names: Sequence[str], part: str) -> tuple[str, ...]:
    start = part_place(part)
    return tuple(name for name in names if not start or f"{name}.".startswith(f"{start}."))


def _nodes(tree: Node) -> dict[str, Node]:
    if isinstance(tree, list) and tree[0] == "d" and all(isinstance(key, str) for key in tree[1][::2]):
        return dict(zip(tree[1][::2], tree[1][1::2], strict=True))
    return {WHOLE: tree}


def _digest(node: Node, arrays: Sequence[int], signs: Sequence[ArraySign]) -> str:
    """A digest that is the same on ranks that count their arrays otherwise."""
    used = [signs[number] for number in arrays]
    if any(sign.open for sign in used):
        return ""
    names = {number: signs[number].name for number in arrays}
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode([renumbered(node, names), used]))


def renumbered(node: Node, numbers: Mapping[int, Any]) -> Node:
    """The same node, whose arrays have other numbers."""
    if all(number == other for number, other in numbers.items()):
        return node
    made = _copied(node) if isinstance(node, list) else node
    for one in array_nodes(made):
        one[1] = numbers[one[1]]
    return made


def _copied(node: list[Any]) -> list[Any]:
    return [_copied(item) if item.__class__ is list else item for item in node]
