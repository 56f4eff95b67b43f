"""Live specs: what the caller's objects expect of a checkpoint, said in the names a save would give."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from model_checkpoint.errors import StructureMismatch
from model_checkpoint.manifest import Entry, Node
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.state import LiveSpecs, Spec
from model_checkpoint.tree.arrays.frameworks import finder, object_kind
from model_checkpoint.tree.nodes.located_error import LocatedError
from model_checkpoint.tree.nodes.names import ROOT, final, join
from model_checkpoint.tree.nodes.specs import specs, with_items
from model_checkpoint.tree.nodes.walk import ABSENT, MAPPINGS, children, plain_names, tag_of
from model_checkpoint.tree.restoring.live_state import SCALARS, LiveState, live_state, named_items

_WITH_PLACES = MAPPINGS | {"l", "t", "nt", "dc"}  # where a live container may have a module


class Sides(NamedTuple):
    """A saved tree and the live objects it goes into, told in the same names."""

    tree: Node  # with the names of the live modules
    saved: list[Spec]
    live: LiveSpecs
    plain: list[str]  # saved leaves that are no arrays
    unmet: list[str]
    unasked: list[str]


def both_sides(tree: Node, entries: Sequence[Entry], live: LiveState) -> Sides:
    """Return all that a comparison of a saved tree with live objects has to know of either.

    Example:
        >>> found = both_sides(["d", ["epoch", 3]], [], LiveState({"epoch": 0, "best": 0.5}))
        >>> found.plain, found.unmet, found.unasked
        (['epoch'], ['best'], [])
    """
    node = aligned(tree, live)
    saved, wanted, plain = specs(node, entries), live_specs(live), plain_names(node)
    return Sides(node, saved, wanted, plain, unmet(node, live), unasked(plain, live))


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
    live = live_state(into)
    found: list[Spec] = []
    opened: list[str] = []
    for name, value in live.leaves:
        _describe(live, name, value, found, opened)
    return LiveSpecs(found, tuple(opened))


def _describe(live: LiveState, name: str, value: Any, specs: list[Spec], opened: list[str]) -> None:
    cls = type(value)
    try:
        find = finder(cls)
        if find is not None:
            found = live.ref(value, find)
            specs.append(Spec(final(name), found.dtype.name, found.shape, -1, found.kind))
            return
    except LocatedError as error:
        raise StructureMismatch(f"{final(name)}: {error.what}") from error
    kind = object_kind(cls) or ""
    if kind == "module":
        for item in live.module(value).items:
            _describe(live, join(name, item.name), item.value, specs, opened)
    elif kind.startswith("keras."):
        from model_checkpoint.tree.arrays.keras_variables import is_built, named_variables

        for key, variable in named_variables(value).items():
            _describe(live, join(name, key), variable.value, specs, opened)
        opened.extend([] if is_built(value) else [f"{name}." if name else ""])
    elif not isinstance(value, SCALARS) and cls not in (list, tuple):
        opened.extend([final(name), f"{name}."] if name else [""])


def stateful_places(into: Any) -> list[tuple[str, Any]]:
    """Return the live objects that have a state of their own, each with its name.

    Example:
        >>> stateful_places({"epoch": 3})
        []
    """
    return [(name, value) for name, value in live_state(into).others if object_kind(type(value))]


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
    live = live_state(into)
    wanted = [name for name, _ in live.others] + _extra_parts(live)
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
    live = live_state(into)
    exact = {final(name) for name, _ in live.others}
    exact.update(map(final, _extra_parts(live)))
    inside = {name for name, _ in live.modules}
    under = {name for name in exact if name not in inside and name != ROOT}
    if any(not name for name, _ in live.others if name not in inside):
        return []  # a single object or value takes all there is
    left = [name for name in plain if name not in exact and name != ROOT and under.isdisjoint(_above(name))]
    if not left:
        return []
    above: set[str] = set()
    for name, _ in live.leaves:
        above.add(name)
        above.update(_above(name, above))
    return [name for name in left if name not in above]


def _extra_parts(live: LiveState) -> list[str]:
    """Return the names of what modules keep in their state_dicts beside tensors."""
    return [join(name, part) for name, module in live.modules for part in live.module(module).extra_names]


def live_parameter_names(into: Any) -> dict[int, str]:
    """Return the dotted name of every parameter owned by a module of the live objects, by identity."""
    modules = live_state(into).modules
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
    live = live_state(into)
    modules = {name: live.module(module) for name, module in live.modules}
    return _aligned(tree, "", modules) if modules else tree


def _aligned(node: Node, name: str, modules: dict[str, Any]) -> Node:
    if name in modules:
        if isinstance(node, list) and tag_of(node) == "m" and len(node) == 4:
            return [*node[:3], modules[name].unwrapped(node[3])]
        unwrapped: Node = modules[name].unwrapped(node)
        return unwrapped
    start = f"{name}." if name else ""
    if tag_of(node) not in _WITH_PLACES or not isinstance(node, list) or not any(m.startswith(start) for m in modules):
        return node
    return with_items(node, [_aligned(item, place, modules) for place, item in children(node, name)])
