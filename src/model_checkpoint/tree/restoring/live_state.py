"""Live state: the caller's objects as one load sees them; containers, modules and arrays are looked at once."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any

from model_checkpoint.errors import StructureMismatch, UnsupportedType
from model_checkpoint.manifest import Node
from model_checkpoint.manifest.scalars import DEEPEST
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.arrays.frameworks import Finder, finder, object_kind
from model_checkpoint.tree.flattening.encode import Encoder
from model_checkpoint.tree.nodes.located_error import LocatedError
from model_checkpoint.tree.nodes.names import dotted, final, join, segment, stay_dotted
from model_checkpoint.tree.values.classes import fields_of, is_namedtuple

if TYPE_CHECKING:
    from model_checkpoint.tree.restoring.torch_module_state import ModuleState

SCALARS = (bool, int, float, complex, str)

Place = tuple[str, Any]  # the name of a live value, and the value


class LiveState:
    """What ``into`` holds. Nothing of it may change as long as this is asked.

    Example:
        >>> import numpy as np
        >>> live = LiveState({"w": np.zeros(3), "epoch": 0})
        >>> [name for name, _ in live.leaves], [name for name, _ in live.others]
        (['w', 'epoch'], ['epoch'])
    """

    def __init__(self, into: Any) -> None:
        self.into = into
        self._items: dict[tuple[int, str], tuple[Any, list[Place] | None]] = {}
        self._refs: dict[int, ArrayRef] = {}  # each holds its array, so that no other gets its identity
        self._modules: dict[int, ModuleState] = {}

    @cached_property
    def leaves(self) -> list[Place]:
        """Whatever is no container, in order."""
        return self._walked[0]

    @cached_property
    def others(self) -> list[Place]:
        """Those of the leaves that are no arrays."""
        return self._walked[1]

    @cached_property
    def modules(self) -> list[Place]:
        """The torch modules among them."""
        return [(name, value) for name, value in self.others if object_kind(type(value)) == "module"]

    @cached_property
    def _walked(self) -> tuple[list[Place], list[Place]]:
        leaves, others = list[Place](), list[Place]()
        if is_array(self.into):
            leaves.append(("", self.into))
        else:
            self._walk(self.into, "", 0, leaves, others)
        return leaves, others

    def _walk(self, value: Any, name: str, depth: int, leaves: list[Place], others: list[Place]) -> None:
        """Note what lies under a value that is no array."""
        if depth > DEEPEST:
            raise StructureMismatch(f"{final(name)}: the live objects are nested deeper than {DEEPEST} containers.")
        whole = type(value) in (list, tuple) and value and all(isinstance(item, SCALARS) for item in value)
        under = None if whole or object_kind(type(value)) else self.items(value, name)
        if not under:  # a list of scalars is replaced as a whole, whatever its length; of a container nothing is left
            one = (name, value if under is None else None)
            leaves.append(one)
            others.append(one)
        elif type(value) in (dict, list) and _only_arrays(value):
            leaves += under
        else:
            for place, item in under:
                if is_array(item):
                    leaves.append((place, item))
                else:
                    self._walk(item, place, depth + 1, leaves, others)

    def items(self, value: Any, name: str) -> list[Place] | None:
        """Return (name, item) of a live container, None for anything else."""
        known = self._items.get((id(value), name))
        if known is None:
            known = self._items[id(value), name] = (value, named_items(value, name))
        return known[1]

    def ref(self, array: Any, find: Finder) -> ArrayRef:
        """Return where a live array lies and what it is."""
        known = self._refs.get(id(array))
        if known is None:
            known = self._refs[id(array)] = find(array)
        return known

    def module(self, module: Any) -> ModuleState:
        """Return what a live torch module's state_dict holds."""
        if id(module) not in self._modules:
            from model_checkpoint.tree.restoring.torch_module_state import ModuleState

            self._modules[id(module)] = ModuleState(module)
        return self._modules[id(module)]


def live_state(into: Any) -> LiveState:
    """Return ``into`` as a load sees it; what is seen already stays as it is."""
    return into if isinstance(into, LiveState) else LiveState(into)


def named_items(value: Any, name: str) -> list[Place] | None:
    """Return (name, item) of a live container, None for anything else."""
    if isinstance(value, dict):
        start, paths = f"{name}." if name else "", _dots_are_paths(value)
        if paths and stay_dotted(value):
            return [(start + key, item) for key, item in value.items()]
        label = dotted if paths else _segment
        return [
            (start + (key if key.__class__ is str and key.isidentifier() else label(key)), item)
            for key, item in value.items()
        ]
    if type(value) is list or type(value) is tuple:
        return [(join(name, str(i)), item) for i, item in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(join(name, segment(f)), getattr(value, f)) for f in fields_of(type(value))]
    if isinstance(value, tuple) and is_namedtuple(type(value)):
        return [(join(name, segment(f)), item) for f, item in zip(fields_of(type(value)), value, strict=True)]
    return None


def _dots_are_paths(value: dict[Any, Any]) -> bool:
    if not all(issubclass(cls, str) for cls in {*map(type, value)}):
        return False
    if getattr(value, "_metadata", None) is not None:
        return True
    return "." in "".join(value) and _only_arrays(value)


def _only_arrays(value: dict[Any, Any] | list[Any]) -> bool:
    """Tell whether a container that is not empty holds arrays and nothing else."""
    classes = set(map(type, value.values() if isinstance(value, dict) else value))
    return all(map(_is_array_class, classes))


def is_array(value: Any) -> bool:
    """Tell whether a live value is an array that can be filled or replaced."""
    return _is_array_class(type(value))


def _is_array_class(cls: type) -> bool:
    try:
        return finder(cls) is not None
    except LocatedError:
        return False


def _segment(key: Any) -> str:
    node: Node
    try:
        node = key if type(key) in (str, int) else Encoder().key(key)
    except LocatedError as error:
        raise UnsupportedType(f"into: {error.what}") from error
    return segment(node)
