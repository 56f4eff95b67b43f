"""Live specs: what the caller's objects expect of a checkpoint, said in the names a save would give."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator
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
from model_checkpoint.tree.nodes.walk import ABSENT, MAPPINGS, children, tag_of
from model_checkpoint.tree.values.classes import fields_of, is_namedtuple

_SCALARS = (bool, int, float, complex, str)
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
    elif not isinstance(value, _SCALARS) and type(value) not in (list, tuple):
        opened.extend([final(name), f"{name}."] if name else [""])


def _places(value: Any, name: str = "", depth: int = 0, *, arrays: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of whatever is no container, with ``arrays`` or without."""
    if depth > DEEPEST:
        raise StructureMismatch(f"{final(name)}: the live objects are nested deeper than {DEEPEST} containers.")
    if not arrays and type(value) in (dict, list) and _only_arrays(value):
        return
    if type(value) in (list, tuple) and value and all(isinstance(item, _SCALARS) for item in value):
        yield name, value  # replaced as a whole, whatever its length
        return
    under = None if object_kind(type(value)) else named_items(value, name)
    if not under:
        yield name, value if under is None else None
        return
    if arrays and type(value) in (dict, list) and _only_arrays(value):
        yield from under
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


def stateful_places(into: Any) -> list[tuple[str, Any]]:
    """Return the live objects that have a state of their own, each with its name.

    Example:
        >>> stateful_places({"epoch": 3})
        []
    """
    return [(name, value) for name, value in _places(into, arrays=False) if object_kind(type(value))]


def stands_alone(into: Any) -> bool:
    """Tell whether live objects are a single value or object, which has no parts of its own to be named.

    Example:
        >>> stands_alone({"model": None}), stands_alone(3)
        (False, True)
    """
    kind = object_kind(type(into))
    return kind != "module" if kind is not None else named_items(into, "") is None


def unmet(tree: Node, into: Any) -> list[str]:
    """Return the names of live objects and plain values that a saved tree has nothing for (arrays: see live_specs).

    Example:
        >>> unmet(["d", ["epoch", 3]], {"epoch": 0, "best": 0.5, "any": None})
        ['best', 'any']
    """
    places = list(_places(into, arrays=False))
    wanted = [name for name, value in places if not _is_array(value)]
    wanted += [part for name, value in places for part in _extra_parts(name, value)]
    have = _names_around(tree, {ancestor for name in wanted for ancestor in _above(name)})
    return [final(name) for name in wanted if name and name not in have]


def _names_around(tree: Node, open_names: set[str]) -> set[str]:
    """Return the names in a saved tree, but of what lies under others than ``open_names``."""
    have: set[str] = set()
    pending: list[tuple[str, Node]] = [("", tree)]
    while pending:
        name, node = pending.pop()
        if node == ABSENT:
            continue
        have.add(name)
        have.update(_above(name, have))
        if isinstance(node, list) and name in open_names:
            pending.extend(children(node, name))
    return have


def _above(name: str, known: Container[str] = ()) -> Iterator[str]:
    """Yield the names of all that a name lies in, the state itself last, up to the first that is known."""
    while name:
        name = name.rpartition(".")[0]
        if name in known:
            return
        yield name


def unasked(plain: Iterable[str], into: Any) -> list[str]:
    """Return which of the ``plain`` values of a saved tree, given by name, the live objects have no place for.

    What would go into a live container or array itself is left to the comparison of their kinds.

    Example:
        >>> unasked(["epoch", "best.loss", "opt"], {"epoch": 0, "opt": {"lr": 0.1}})
        ['best.loss']
    """
    places = [(name, value) for name, value in _places(into, arrays=False) if not _is_array(value)]
    modules = [(name, value) for name, value in places if object_kind(type(value)) == "module"]
    exact = {final(name) for name, _ in places}
    exact.update(final(part) for name, value in modules for part in _extra_parts(name, value))
    inside = {name for name, _ in modules}
    under = {name for name in exact if name not in inside and name != ROOT}
    if any(not name for name, value in places if name not in inside):
        return []  # a single object or value takes all there is
    left = [name for name in plain if name not in exact and name != ROOT and under.isdisjoint(_above(name))]
    if not left:
        return []
    above: set[str] = set()
    for name, _ in _places(into):
        above.add(name)
        above.update(_above(name, above))
    return [name for name in left if name not in above]


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
