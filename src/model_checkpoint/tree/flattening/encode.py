"""Encode: a state becomes a tree of nodes; arrays are collected on the way.

A node is a scalar or ``[tag, ...]``. Containers: ``d`` dict, ``k`` dict whose dots in keys are path dots, ``o``
OrderedDict, ``l`` list, ``t`` tuple, ``s`` and ``fs`` sets, ``nt`` namedtuple, ``dc`` dataclass, ``e`` enum, ``m``
object with a state_dict, ``x`` value of a codec. Arrays: ``a`` a stored array, ``v`` a view into one.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import numpy as np

from model_checkpoint.errors import CheckpointException
from model_checkpoint.manifest import Node
from model_checkpoint.manifest.scalars import DEEPEST
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.arrays.frameworks import finder, loaded, object_kind, state_of
from model_checkpoint.tree.nodes.located_error import LocatedError, no_codec
from model_checkpoint.tree.nodes.names import brief
from model_checkpoint.tree.values import values
from model_checkpoint.tree.values.classes import dataclass_values, fields_of, is_namedtuple, label
from model_checkpoint.tree.values.codecs import codec_of
from model_checkpoint.tree.values.dtypes import UINT8
from model_checkpoint.tree.values.standard_codecs import Codec, defaultdict_name

Encoded = Callable[["Encoder", Any], Node]


class BytesRef(ArrayRef):
    """A long byte string."""

    __slots__ = ()
    kind = "bytes"

    def window(self, start: int, stop: int) -> memoryview:
        """Return a view of the bytes ``[start, stop)``."""
        return memoryview(self.value)[start:stop]


class BytearrayRef(BytesRef):
    """A long mutable byte string."""

    __slots__ = ()
    kind = "bytearray"


class Encoder:
    """Turns one state into nodes; ``found`` holds the arrays in the order of their nodes."""

    def __init__(self) -> None:
        self.found: list[ArrayRef] = []
        self.modules: list[tuple[list[Any], Any]] = []  # nodes of modules, and the modules
        self.optimizers: list[tuple[list[Any], Any]] = []
        self.of_rank_zero: dict[int, tuple[str, ...]] = {}  # what objects declare so, by the identity of their nodes
        self._handlers: dict[type, Encoded] = dict(_HANDLERS)
        self._open: set[int] = set()

    def encode(self, value: Any) -> Node:
        """Return the node of ``value``."""
        cls = type(value)
        handler = self._handlers.get(cls)
        if handler is None:
            handler = self._handlers[cls] = _handler(cls)
        return handler(self, value)

    def items(self, values: Iterable[Any], keys: Iterable[Any] | None = None) -> list[Node]:
        """Return the nodes of a sequence; ``keys`` name them in errors (default: positions)."""
        nodes: list[Node] = []
        labels = list(keys) if keys is not None else None
        try:
            for value in values:
                nodes.append(self.encode(value))
        except LocatedError as error:
            error.keys.append(labels[len(nodes)] if labels is not None else len(nodes))
            raise
        return nodes

    def pairs(self, mapping: dict[Any, Any]) -> list[Node]:
        """Return key, value, key, value, ... of a dict as nodes."""
        flat: list[Node] = []
        encode, handlers = self.encode, self._handlers
        key: Any = None
        try:
            for key, value in mapping.items():
                flat.append(key if type(key) is str and key.isascii() else self.key(key))
                handler = handlers.get(type(value))
                flat.append(handler(self, value) if handler is not None else encode(value))
        except LocatedError as error:
            error.keys.append(key)
            raise
        return flat

    def key(self, key: Any, what: str = "dict key", *, depth: int = 0) -> Node:
        """Return the node of a dict key or set member: a scalar, an enum, or a tuple of those."""
        self._refuse_depth(depth)
        cls = type(key)
        if cls in values.PACKERS and cls is not np.dtype:
            return values.PACKERS[cls](key)
        if cls is bytes and len(key) <= values.LONG_BYTES:
            return values.pack_bytes(key)
        if isinstance(key, Enum):
            return _enum(self, key)
        if cls is tuple:
            return ["t", [self.key(part, depth=depth + 1) for part in key]]
        if cls is frozenset:
            return ["fs", sorted((self.key(part, depth=depth + 1) for part in key), key=repr)]
        if isinstance(key, np.generic):
            return values.pack_numpy(key)
        raise LocatedError(
            f"a {what} of type {cls.__qualname__} cannot be saved, got {str(key)[:60]!r}. "
            "Use str, int, float, bool, None, bytes (up to 4 KiB), an enum, or a tuple of those."
        )

    def inside(self, value: Any, make: Callable[[], Node]) -> Node:
        """Encode what a container holds, refusing cycles and bottomless nesting."""
        mark = id(value)
        if mark in self._open:
            raise LocatedError("the container holds itself, and a tree has no cycles. Break the cycle before saving.")
        self._refuse_depth(1)
        self._open.add(mark)
        try:
            return make()
        finally:
            self._open.discard(mark)

    def _refuse_depth(self, more: int) -> None:
        if len(self._open) + more > DEEPEST:
            raise LocatedError(f"nested deeper than {DEEPEST} containers. Flatten this part of the state.")


def _array(find: Callable[[Any], ArrayRef]) -> Encoded:
    def handle(encoder: Encoder, value: Any) -> Node:
        try:
            found = find(value)
        except LocatedError:
            codec = codec_of(type(value))
            if codec is None:
                raise
            return _coded(codec)(encoder, value)
        node = found.node = ["a", len(encoder.found)]
        if found.flags:
            node.append(found.flags)
        encoder.found.append(found)
        return node

    return handle


def _bytes(encoder: Encoder, value: bytes | bytearray) -> Node:
    if len(value) <= values.LONG_BYTES:
        return values.pack_bytes(value)
    cls = BytesRef if type(value) is bytes else BytearrayRef
    found = cls(value, UINT8, (len(value),), len(value))
    node = found.node = ["a", len(encoder.found)]
    encoder.found.append(found)
    return node


def _dict(encoder: Encoder, value: dict[Any, Any]) -> Node:
    def make() -> Node:
        flat = encoder.pairs(value)
        return ["k" if dots_are_paths(flat[::2], flat[1::2]) else "d", flat]

    return encoder.inside(value, make)


def _ordered(encoder: Encoder, value: OrderedDict[Any, Any]) -> Node:
    def make() -> Node:
        flat = encoder.pairs(value)
        metadata = getattr(value, "_metadata", None)
        if metadata is None:
            return ["o", flat, dots_are_paths(flat[::2], flat[1::2])]
        text_keys, before = all(isinstance(key, str) for key in flat[::2]), len(encoder.found)
        node = ["o", flat, text_keys, encoder.encode(metadata)]
        if len(encoder.found) > before:
            raise LocatedError(
                "its _metadata holds arrays, which torch never puts there. Move them into the dict itself."
            )
        return node

    return encoder.inside(value, make)


def dots_are_paths(keys: list[Node], nodes: list[Node]) -> bool:
    """Tell whether dots in the keys may stay: all values are arrays, so none can be taken for a deeper container."""
    if not any("." in key for key in keys if isinstance(key, str)):
        return False
    return all(isinstance(key, str) for key in keys) and all(
        isinstance(node, list) and node[0] in ("a", "v") for node in nodes
    )


def _sequence(tag: str) -> Encoded:
    return lambda encoder, value: encoder.inside(value, lambda: [tag, encoder.items(value)])


def _set(tag: str) -> Encoded:
    def handle(encoder: Encoder, value: Any) -> Node:
        return [tag, sorted((encoder.key(item, "set member") for item in value), key=repr)]

    return handle


def _enum(encoder: Encoder, value: Enum) -> Node:
    plain = type(value.value) in values.PACKERS
    return ["e", label(type(value)), value.name, encoder.encode(value.value) if plain else None]


def _record(tag: str) -> Encoded:
    def handle(encoder: Encoder, value: Any) -> Node:
        pairs = dataclass_values(value) if tag == "dc" else list(zip(fields_of(type(value)), value, strict=True))
        names = [name for name, _ in pairs]
        return encoder.inside(
            value, lambda: [tag, label(type(value)), names, encoder.items((item for _, item in pairs), names)]
        )

    return handle


def _coded(codec: Codec) -> Encoded:
    def handle(encoder: Encoder, value: Any) -> Node:
        plain = _asked(lambda: codec.encode(value), f"encode of the codec {codec.name}")
        return encoder.inside(value, lambda: ["x", codec.name, encoder.encode(plain)])

    return handle


def _defaultdict(encoder: Encoder, value: defaultdict[Any, Any]) -> Node:
    name = defaultdict_name(value)
    if name is None:
        raise LocatedError(
            f"cannot save a defaultdict that makes its values by {brief(value.default_factory)}. Use a builtin such as "
            "int or list as its factory, or save dict(...) of it."
        )
    return encoder.inside(value, lambda: ["x", name, _dict(encoder, dict(value))])


def _asked(ask: Callable[[], Any], what: str) -> Any:
    """Return what the caller's own code gives, or say whose code failed where."""
    try:
        return ask()
    except Exception as error:  # a user's code may raise anything
        raise LocatedError(f"{what} failed ({type(error).__name__}: {error}).", CheckpointException) from error


def _stateful(kind: str) -> Encoded:
    def handle(encoder: Encoder, value: Any) -> Node:
        def make() -> Node:
            state = _asked(lambda: state_of(value), f"state_dict() of {type(value).__qualname__}")
            if kind == "module":
                from model_checkpoint.tree.flattening.torch_wrappers import bare_state

                state = bare_state(value, state)
            node: list[Any] = ["m", kind, label(type(value)), encoder.encode(state)]
            if kind == "module":
                encoder.modules.append((node, value))
            elif kind == "optimizer":
                encoder.optimizers.append((node, value))
            if declared := getattr(type(value), "of_rank_zero", ()):
                encoder.of_rank_zero[id(node)] = tuple(declared)
            return node

        return encoder.inside(value, make)

    return handle


def _handler(cls: type) -> Encoded:
    """Choose how values of a type met for the first time are encoded."""
    codec = codec_of(cls)
    find = finder(cls) if codec is None else None
    if codec is not None:
        own = finder(cls) if cls.__module__.split(".")[0] in ("torch", "numpy") else None
        return _coded(codec) if own is None else _array(own)
    if find is not None:
        return _array(find)
    if issubclass(cls, np.generic):
        return lambda encoder, value: values.pack_numpy(value)
    kind = object_kind(cls)
    if kind is not None:
        return _stateful(kind)
    return _class_handler(cls)


def _class_handler(cls: type) -> Encoded:
    if issubclass(cls, Enum):
        return _enum
    if dataclasses.is_dataclass(cls):
        return _record("dc")
    if is_namedtuple(cls):
        return _record("nt")
    if issubclass(cls, np.dtype):
        return lambda encoder, value: values.PACKERS[np.dtype](value)
    if loaded("torch"):
        from model_checkpoint.tree.arrays import torch_types

        pack, codec = torch_types.PACKERS.get(cls), codec_of(cls)
        if pack is not None:
            return lambda encoder, value: pack(value)
        if codec is not None:  # registered just now, with torch's classes
            return _coded(codec)
    raise no_codec(cls)


def _scalar(pack: Callable[[Any], Node]) -> Encoded:
    return lambda encoder, value: pack(value)


_HANDLERS: dict[type, Encoded] = {
    **{cls: _scalar(pack) for cls, pack in values.PACKERS.items()},
    bytes: _bytes,
    bytearray: _bytes,
    dict: _dict,
    defaultdict: _defaultdict,
    OrderedDict: _ordered,
    list: _sequence("l"),
    tuple: _sequence("t"),
    set: _set("s"),
    frozenset: _set("fs"),
}
