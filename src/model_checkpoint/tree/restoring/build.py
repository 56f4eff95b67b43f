"""Build: nodes become values again. Everything is checked first; building afterwards cannot meet a bad node."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from typing import Any

from model_checkpoint.errors import (
    CheckpointException,
    ClassUnavailable,
    LimitExceeded,
    ManifestInvalid,
    StructureMismatch,
)
from model_checkpoint.manifest import Entry, Node
from model_checkpoint.performance.available_memory import available_bytes
from model_checkpoint.tree.arrays.array_ref import c_strides, extent
from model_checkpoint.tree.arrays.buffers import RANK, ArrayBuffer, show, stored_form
from model_checkpoint.tree.arrays.frameworks import loaded
from model_checkpoint.tree.arrays.sharded_buffer import ShardedBuffer
from model_checkpoint.tree.arrays.shards.sharded_ref import ShardedRef
from model_checkpoint.tree.nodes.names import shown
from model_checkpoint.tree.nodes.walk import (
    ABSENT,
    ARRAYS,
    CONTAINERS,
    DEEPEST,
    MAPPINGS,
    array_nodes,
    children,
    damaged,
    tag_of,
)
from model_checkpoint.tree.values import classes, values
from model_checkpoint.tree.values.codecs import codec_named
from model_checkpoint.tree.values.standard_codecs import Codec

_FARTHEST = 1 << 62  # bytes; no framework counts farther
_TORCH_ATOMS = frozenset(("torch.Size", "torch.dtype", "torch.device"))


class Builder:
    """Checks and builds one saved tree; ``memories`` are the stored arrays it needs."""

    def __init__(
        self, entries: Sequence[Entry], *, types: Sequence[type] = (), framework: str | None = None, device: Any = None
    ) -> None:
        self._entries = entries
        self._framework, self.device = framework, device
        self.classes = classes.Resolver(types)
        self.memories: dict[int, ArrayBuffer] = {}
        self.sharded: dict[int, ShardedBuffer] = {}  # those of the memories of which only a part is made
        self._wholes: dict[int, Any] = {}
        self._views: dict[tuple[int, int], Any] = {}
        self._coded_at: dict[int, str] = {}

    def check(self, node: Node, name: str = "", *, depth: int = 0) -> None:
        """Refuse whatever could not be built, naming the leaf; note which stored arrays are needed."""
        if not isinstance(node, list):
            return
        try:
            self._check_one(node, name, depth)
        except CheckpointException as error:
            if getattr(error, "placed", False):
                raise
            raise located(name, error) from error
        if node[0] in CONTAINERS:
            for place, item in children(node, name):
                if isinstance(item, list) and item != ABSENT:
                    self.check(item, place, depth=depth + 1)

    def _check_one(self, node: list[Any], name: str, depth: int) -> None:
        tag = tag_of(node)
        if tag in ARRAYS:
            self.memory(node, name)
        elif depth > DEEPEST:
            raise damaged("nesting deeper than any save writes")
        elif tag in CONTAINERS:
            self._check_container(node, name, depth)
        elif tag in ("s", "fs"):
            self._set(node)
        else:
            self._atom(node)

    def check_keys(self, keys: Sequence[Node]) -> None:
        """Refuse nodes that are no dict keys or set members."""
        for key in keys:
            if not isinstance(key, str):
                try:
                    hash(self._key(key))
                except (TypeError, IndexError) as error:
                    raise damaged(key) from error

    def _check_container(self, node: list[Any], name: str, depth: int) -> None:
        children(node, "")  # refuses a wrong form
        if node[0] in ("nt", "dc"):
            self._require_tag(node[0], self.classes.record(node[1], node[2]))
            if ABSENT in node[3]:
                raise StructureMismatch(
                    f"only some fields of {node[1]} are selected. Select all of it, or load into= a live one."
                )
        elif node[0] == "x":
            _codec(node[1])
            self._coded_at[id(node)] = name
        elif node[0] == "m":
            self._check_object(node, name, depth)
        elif node[0] in "dko":
            self.check_keys(node[1][::2])
            for metadata in node[3:]:
                if array_nodes(metadata):
                    raise damaged(metadata)
                self.check(metadata, name, depth=depth + 1)

    def _check_object(self, node: list[Any], name: str, depth: int) -> None:
        if node[1] == "rng" and tag_of(node[3]) not in MAPPINGS:
            raise damaged(node)
        if len(node) > 4:  # an optimizer, whose state is named after parameters, so that no walk meets these dicts
            for part in (node[3], *node[3][1][1::2]):
                if tag_of(part) in MAPPINGS:
                    self._check_container(part, name, depth)

    def _require_tag(self, tag: str, cls: type) -> None:
        if (tag == "nt") != issubclass(cls, tuple):
            raise damaged([tag, classes.label(cls)])

    def memory(self, node: list[Any], name: str, kind: str | None = None) -> ArrayBuffer:
        """Return the stored array an array node shows, checked; ``kind`` is that of the live array it is for."""
        index = node[1] if len(node) > 1 else None
        if type(index) is not int or not 0 <= index < len(self._entries):
            raise damaged(node)
        if node[0] == "v":
            self._check_flags(node, self.geometry(node, kind)[1], node[7])
        elif len(node) > 2:
            self._check_flags(node, self._entries[index].dtype, node[2])
        known = self.memories.get(index)
        if known is None:
            known = ArrayBuffer(self._entries[index], name=name, framework=kind or self._framework)
            self.memories[index] = known
        return known

    def memory_like(self, node: list[Any], name: str, live: ShardedRef) -> ShardedBuffer:
        """Return the stored array an array node shows, of which only the part that ``live`` has is made."""
        whole, known = self.memory(node, name, live.kind), self.sharded.get(node[1])
        if known is None:
            known = self.memories[node[1]] = self.sharded[node[1]] = ShardedBuffer(whole.entry, name=name, live=live)
        return known

    def _check_flags(self, node: list[Any], dtype: str, flags: Any) -> None:
        """Refuse flags no save writes: only numbers with a fraction have gradients."""
        known = ("", "q", "g", "p") if dtype.startswith(("float", "bfloat", "complex")) else ("", "q")
        if flags not in known or len(node) > (3 if node[0] == "a" else 9):
            raise damaged(node)

    def described(self, node: list[Any]) -> tuple[str, tuple[int, ...]]:
        """Return the saved dtype and shape of an array node."""
        if node[0] == "a" and len(node) > 1 and type(node[1]) is int and 0 <= node[1] < len(self._entries):
            entry = self._entries[node[1]]
            return entry.dtype, entry.shape
        match node:
            case ["v", _, str(), str(dtype), list(shape), *_]:
                return dtype, tuple(shape)
        raise damaged(node)

    def geometry(
        self, node: list[Any], kind: str | None = None
    ) -> tuple[str, str, tuple[int, ...], tuple[int, ...], int]:
        """Return (kind, dtype, shape, strides, offset) of a view, checked to lie inside its array."""
        match node:
            case ["v", index, str(saved), str(dtype), list(shape), list() | None as strides, int(offset), str(), int()]:
                kind = kind or self._framework or saved
                form = stored_form(dtype, kind=kind, saved=saved)
                sides = tuple(side for side in shape if type(side) is int and 0 <= side <= _FARTHEST)
                steps = c_strides(sides, form.itemsize) if strides is None else tuple(strides)
                sane = len(sides) == len(steps) == len(shape) <= RANK and all(map(_is_step, steps))
                if sane and _inside(sides, steps, form.itemsize, offset=offset, size=self._entries[index].nbytes):
                    copied = kind not in ("torch", "numpy") or min(steps, default=0) < 0
                    _require_room(form.nbytes(sides), self._entries[index].nbytes, copied=copied)
                    return kind, form.name, sides, steps, offset
        raise damaged(node)

    def lend(self, index: int, live: Any) -> None:
        """Let the live array ``live`` stand for stored array ``index``."""
        self._wholes[index] = self.memories[index].base = live

    def array(self, node: list[Any]) -> Any:
        """Return the array of an array node; equal nodes give one object."""
        index = node[1]
        if node[0] == "a":
            made = self._wholes.get(index)
            if made is None:
                flags = node[2] if len(node) > 2 else ""
                made = self._wholes[index] = self.memories[index].value(flags, self.device)
            return made
        key = (index, node[8])
        if key not in self._views:
            kind, *geometry = self.geometry(node)
            view = show(self.memories[index].base, kind, self.device, geometry=geometry)
            self._views[key] = _flagged(view, kind, node[7])
        return self._views[key]

    def leaves_torch(self, node: list[Any]) -> bool:
        """Tell whether a checked array node was saved from torch and becomes an array of another framework."""
        if node[0] == "a":
            return self._entries[node[1]].kind == "torch" and self.memories[node[1]].kind != "torch"
        return bool(node[2] == "torch") and self.geometry(node)[0] != "torch"

    def place_of(self, node: list[Any]) -> str:
        """Return the name of a checked codec value."""
        return self._coded_at.get(id(node)) or shown([])

    def build(self, node: Node) -> Any:
        """Return the value of a checked node."""
        if not isinstance(node, list):
            return node
        make = _BUILDERS.get(node[0])
        return make(self, node) if make is not None else self._atom(node)

    def _key(self, node: Node) -> Any:
        """Return a dict key or set member."""
        if isinstance(node, list) and tag_of(node) in ("t", "fs"):
            parts = (self._key(part) for part in node[1])
            return tuple(parts) if node[0] == "t" else frozenset(parts)
        return self._atom(node) if isinstance(node, list) else node

    def key(self, node: Node) -> Any:
        """Return the Python key of a key node."""
        return node if isinstance(node, str) else self._key(node)

    def pairs(self, node: list[Any]) -> list[tuple[Any, Any]]:
        """Return the built items of a mapping node."""
        flat, build, key = node[1], self.build, self._key
        return [
            (k if isinstance(k, str) else key(k), build(item)) for k, item in zip(flat[::2], flat[1::2], strict=True)
        ]

    def _atom(self, node: list[Any]) -> Any:
        if node[0] == "e":
            match node:
                case ["e", str(cls), str() | None as name, value]:
                    return self.classes.member(cls, name, value=values.unpack_value(value))
            raise damaged(node)
        if node[0] in _TORCH_ATOMS:
            if not loaded("torch"):
                raise ClassUnavailable(
                    f"a {node[0]}, and torch is not imported; a load imports nothing by itself. "
                    "Import torch first, or load without it (parts=)."
                )
            from model_checkpoint.tree.arrays import torch_types

            return torch_types.unpack_torch(node)
        return values.unpack_value(node)

    def _set(self, node: list[Any]) -> Any:
        if len(node) != 2 or not isinstance(node[1], list):
            raise damaged(node)
        self.check_keys(node[1])
        members = [self._key(item) for item in node[1]]
        return set(members) if node[0] == "s" else frozenset(members)

    def finish(self, live: Container[int] = ()) -> None:
        """Bring every needed array into its final form, but those that came straight into ``live`` memory."""
        for index, memory in self.memories.items():
            if index not in live:
                memory.finished(self.device)


def _is_step(step: Any) -> bool:
    return type(step) is int and abs(step) <= _FARTHEST


def _require_room(nbytes: int, stored: int, *, copied: bool) -> None:
    """Refuse a view that shows its memory so often that no copy of it could be made."""
    most = available_bytes() if nbytes > stored and copied else None
    if nbytes > _FARTHEST or (most is not None and nbytes > most):
        raise LimitExceeded(f"a view of {nbytes} bytes into {stored} stored ones. Load another step, or without it.")


def _inside(shape: Sequence[int], steps: Sequence[int], item: int, *, offset: int, size: int) -> bool:
    """Tell whether a view stays inside ``size`` bytes, on whole elements."""
    lead, span = extent(shape, steps, item)
    return offset >= lead and offset - lead + span <= size and not (item and offset % item)


def _flagged(view: Any, kind: str, flags: str) -> Any:
    if kind != "torch" or not flags:
        return view
    from model_checkpoint.tree.arrays.torch_arrays import flagged

    return flagged(view, flags)


def located(name: str, error: CheckpointException) -> CheckpointException:
    """Return ``error`` with the leaf it concerns at the head of its message."""
    placed = type(error)(f"{name or shown([])}: {error.message}")
    placed.placed = True  # type: ignore[attr-defined]
    return placed


def _items(builder: Builder, node: list[Any]) -> list[Any]:
    return [builder.build(item) for item in node[-1] if item != ABSENT]


def _ordered(builder: Builder, node: list[Any]) -> Any:
    made: Any = OrderedDict(builder.pairs(node))
    if len(node) > 3:
        made._metadata = builder.build(node[3])
    return made


def _record(builder: Builder, node: list[Any]) -> Any:
    return classes.build(builder.classes.record(node[1], node[2]), node[2], _items(builder, node))


def _object(builder: Builder, node: list[Any]) -> Any:
    state = builder.build(node[3])
    if node[1] != "rng":
        return state
    from model_checkpoint.tree.generators.rng import RngState

    return RngState(state)


def _codec(name: str) -> Codec:
    if name.startswith("torch.") and loaded("torch"):
        from model_checkpoint.tree.arrays import torch_types  # noqa: F401 - registers those of torch's classes
    return codec_named(name)


def _coded(builder: Builder, node: list[Any]) -> Any:
    codec, plain = codec_named(node[1]), builder.build(node[2])
    try:
        return codec.decode(plain)
    except Exception as error:  # a user's decode may raise anything
        raise ManifestInvalid(
            f"{builder.place_of(node)}: decode of the codec {codec.name} failed ({type(error).__name__}: {error}). "
            "Register a decode that takes what was saved, or load without this part (parts=).",
            inner_exception=error,
        ) from error


_BUILDERS: dict[str, Callable[[Builder, list[Any]], Any]] = {
    "a": Builder.array,
    "v": Builder.array,
    "d": lambda builder, node: dict(builder.pairs(node)),
    "k": lambda builder, node: dict(builder.pairs(node)),
    "o": _ordered,
    "l": _items,
    "t": lambda builder, node: tuple(_items(builder, node)),
    "s": Builder._set,
    "fs": Builder._set,
    "nt": _record,
    "dc": _record,
    "m": _object,
    "x": _coded,
}
