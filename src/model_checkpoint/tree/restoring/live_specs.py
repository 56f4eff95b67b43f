"""Live specs: what the caller's objects expect of a checkpoint, said in the names a save would give."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from model_checkpoint.errors import StructureMismatch, UnsupportedType
from model_checkpoint.manifest import Node
from model_checkpoint.manifest.scalars import DEEPEST
from model_checkpoint.state import LiveSpecs, Spec
from model_checkpoint.tree.arrays.frameworks import finder, object_kind
from model_checkpoint.tree.flattening.encode import Encoder
from model_checkpoint.tree.nodes.gc_pause import collector_paused
from model_checkpoint.tree.nodes.located_error import LocatedError
from model_checkpoint.tree.nodes.names import ROOT, dotted, final, join, segment
from model_checkpoint.tree.nodes.specs import with_items
from model_checkpoint.tree.nodes.walk import MAPPINGS, children, leaves, tag_of
from model_checkpoint.tree.values.classes import fields_of, is_namedtuple
from model_checkpoint.tree.values.plain import plain_values

_WITH_PLACES = MAPPINGS | {"l", "t", "nt", "dc"}  # where a live container may have a module


@collector_paused()
def live_specs(into: Any) -> LiveSpecs:
    """Return the array leaves of live objects, and where anything is welcome.

    An open prefix that ends with a dot takes every name under it, one without takes exactly that name; the empty one
    takes all.

    Example:
        >>> import numpy as np
        >>> live = live_specs({"w": np.zeros(3), "later": None})
        >>> [(spec.name, spec.dtype, spec.shape) for spec in live.specs], live.open_prefixes
        ([('w', 'float64', (3,))], ('later', 'later.'))
    """
    specs: list[Spec] = []
    opened: list[str] = []
    for name, value in _places(into):
        _describe(name, value, specs, opened)
    return LiveSpecs(specs, tuple(opened))


def _describe(name: str, value: Any, specs: list[Spec], opened: list[str]) -> None:
    cls = type(value)
    try:
        find = finder(cls)
        if find is not None:
            found = find(value)
            specs.append(Spec(final(name), found.dtype.name, found.shape, kind=found.kind))
            return
    except LocatedError as trouble:
        raise StructureMismatch(f"{final(name)}: {trouble.what}") from trouble
    if object_kind(cls) == "module":
        from model_checkpoint.tree.restoring.torch_module_state import state_items

        for item in state_items(value):
            _describe(join(name, item.name), item.value, specs, opened)
    elif (object_kind(cls) or "").startswith("keras."):
        from model_checkpoint.tree.arrays.keras_variables import is_built, named_variables

        for key, variable in named_variables(value).items():
            _describe(join(name, key), variable.value, specs, opened)
        opened.extend([] if is_built(value) else [f"{name}." if name else ""])
    elif not isinstance(value, (bool, int, float, complex, str)):
        opened.extend([final(name), f"{name}."] if name else [""])


def _places(value: Any, name: str = "", depth: int = 0, *, arrays: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of whatever is no container, with ``arrays`` or without."""
    if depth > DEEPEST:
        raise StructureMismatch(f"{final(name)}: the live objects are nested deeper than {DEEPEST} containers.")
    if not arrays and type(value) in (dict, list) and _only_arrays(value):
        return
    under = None if object_kind(type(value)) else named_items(value, name)
    if not under:
        yield name, value if under is None else None
        return
    for place, item in under:
        if not _is_array(item):
            yield from _places(item, place, depth + 1, arrays=arrays)
        elif arrays:
            yield place, item


def named_items(value: Any, name: str) -> list[tuple[str, Any]] | None:
    """Return (name, item) of a live container, None for anything else."""
    if isinstance(value, dict):
        label = dotted if _dots_are_paths(value) else _segment
        start = f"{name}." if name else ""
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
    if not all(isinstance(key, str) for key in value):
        return False
    if getattr(value, "_metadata", None) is not None:
        return True
    return any("." in key for key in value) and _only_arrays(value)


def _only_arrays(value: dict[Any, Any] | list[Any]) -> bool:
    """Tell whether a container holds arrays and nothing else (not even nothing)."""
    classes = set(map(type, value.values() if isinstance(value, dict) else value))
    return bool(classes) and all(map(_is_array_class, classes))


def _is_array(value: Any) -> bool:
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
    except LocatedError as trouble:
        raise UnsupportedType(f"into: {trouble.what}") from trouble
    return segment(node)


def unmet(tree: Node, into: Any) -> list[str]:
    """Return the names of live objects and plain values that a saved tree has nothing for (arrays: see live_specs).

    Example:
        >>> unmet(["d", ["epoch", 3]], {"epoch": 0, "best": 0.5, "any": None})
        ['best']
    """
    places = [(name, value) for name, value in _places(into, arrays=False) if value is not None]
    wanted = [final(name) for name, value in places if not _is_array(value)]
    wanted += [final(part) for name, value in places for part in _extra_parts(name, value)]
    have: set[str] = set()
    for name, _ in leaves(tree) if wanted else ():
        while name not in have:
            have.add(name)
            name = name.rpartition(".")[0]
    return [name for name in wanted if name not in have and name != ROOT]


def unasked(tree: Node, into: Any) -> list[str]:
    """Return the plain values saved inside a module, such as its extra state, that the live module has no place for.

    Example:
        >>> unasked(["d", ["epoch", 3]], {"epoch": 0})
        []
    """
    modules = [(name, value) for name, value in _places(into, arrays=False) if object_kind(type(value)) == "module"]
    saved = [name for name in plain_values(tree) if name != ROOT] if modules else []
    found: list[str] = []
    for name, module in modules:
        inside = [leaf for leaf in saved if not name or leaf.startswith(f"{name}.")]
        places = _extra_parts(name, module) if inside else []
        under = tuple(f"{place}." for place in places)
        found += [leaf for leaf in inside if leaf not in places and not leaf.startswith(under)]
    return found


def _extra_parts(name: str, value: Any) -> list[str]:
    """Return the names of what a module keeps in its state_dict beside tensors."""
    if object_kind(type(value)) != "module":
        return []
    from model_checkpoint.tree.restoring.torch_module_state import extra_names

    return [join(name, part) for part in extra_names(value)]


def live_parameter_names(into: Any) -> dict[int, str]:
    """Return the dotted name of every parameter owned by a module of the live objects, by identity."""
    modules = [(name, value) for name, value in _places(into, arrays=False) if object_kind(type(value)) == "module"]
    if not modules:
        return {}
    from model_checkpoint.tree.flattening.torch_owners import parameter_names

    return parameter_names(modules)


def aligned(tree: Node, into: Any) -> Node:
    """Return a saved tree whose modules have the names of the live ones, where only wrappers make them differ.

    Example:
        >>> aligned(["d", ["epoch", 3]], {"epoch": 0})
        ['d', ['epoch', 3]]
    """
    modules = {name: value for name, value in _places(into, arrays=False) if object_kind(type(value)) == "module"}
    return _aligned(tree, "", modules) if modules else tree


def _aligned(node: Node, name: str, modules: dict[str, Any]) -> Node:
    if name in modules:
        from model_checkpoint.tree.restoring.torch_module_state import unwrapped

        if isinstance(node, list) and tag_of(node) == "m" and len(node) == 4:
            return [*node[:3], unwrapped(node[3], modules[name])]
        return unwrapped(node, modules[name])
    start = f"{name}." if name else ""
    if tag_of(node) not in _WITH_PLACES or not isinstance(node, list) or not any(m.startswith(start) for m in modules):
        return node
    return with_items(node, [_aligned(item, place, modules) for place, item in children(node, name)])
