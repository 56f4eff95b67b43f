"""Dependency graph: which layer needs which, and the order that follows.

Walks are iterative, so a chain of any length will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from model_checkpoint import forks
from model_checkpoint.recompute.activations.activation import check_layer_id
from model_checkpoint.recompute.errors import DependencyCycle, SettingInvalid

_WHERE = "dependency graph"


class DependencyGraph:
    """Layers and the layers they depend on; safe from any thread.

    Example:
        >>> graph = DependencyGraph()
        >>> graph.add_dependency("c", ["a", "b"])
        >>> graph.add_dependency("b", ["a"])
        >>> graph.get_topological_order(["c", "b", "a"])
        ['a', 'b', 'c']
    """

    def __init__(self) -> None:
        self._needs: dict[str, dict[str, None]] = {}  # inner dict: an ordered set
        self._lock = forks.lock()

    def add_dependency(self, layer_id: str, depends_on: Iterable[str]) -> None:
        """Say that ``layer_id`` needs every layer of ``depends_on``, besides what it needed before."""
        check_layer_id(layer_id, where=_WHERE)
        needed = list_layer_ids(depends_on, where=f"{_WHERE}: {layer_id!r} depends on")
        with self._lock:
            self._needs.setdefault(layer_id, {}).update(dict.fromkeys(needed))

    def get_dependencies(self, layer_id: str) -> tuple[str, ...]:
        """The layers ``layer_id`` needs directly, as they were added."""
        with self._lock:
            return tuple(self._needs.get(layer_id, ()))

    def remove(self, layer_id: str) -> None:
        """Forget what ``layer_id`` needs; that others need it stays."""
        with self._lock:
            self._needs.pop(layer_id, None)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._needs.clear()

    def find_cycle(self) -> tuple[str, ...]:
        """One circle of layers that need each other, the first again at the end; empty when there is none."""
        with self._lock:
            try:
                _depth_first(self._needs, self._needs)
            except DependencyCycle as found:
                return found.cycle
        return ()

    def has_cycle(self) -> bool:
        """Whether some layer needs itself, directly or through others."""
        return bool(self.find_cycle())

    def get_topological_order(self, layer_ids: Iterable[str]) -> list[str]:
        """The given layers, each once, dependencies first; what no dependency decides keeps the given order.

        Layers that were not given only carry the order on: with a -> x -> b and [a, b] given, b comes first.

        Raises:
            DependencyCycle: the layers need each other in a circle (a ``RuntimeError``).
        """
        wanted = dict.fromkeys(list_layer_ids(layer_ids, where=_WHERE))
        with self._lock:
            return [layer for layer in _depth_first(self._needs, wanted) if layer in wanted]

    def get_closure(self, layer_ids: Iterable[str]) -> list[str]:
        """The given layers and all they need, directly or not, dependencies first."""
        wanted = list_layer_ids(layer_ids, where=_WHERE)
        with self._lock:
            return _depth_first(self._needs, wanted)

    def restrict(self, layer_ids: Iterable[str]) -> dict[str, set[str]]:
        """For each given layer the given layers that must come before it, directly or through others."""
        wanted = dict.fromkeys(self.get_topological_order(layer_ids))
        with self._lock:
            return {layer: _nearest(self._needs, layer, wanted) for layer in wanted}


def list_layer_ids(layer_ids: Iterable[str] | None, *, where: str) -> list[str]:
    """Check a collection of layer ids and return it as a list.

    Raises:
        SettingInvalid: it is None or one string (a ``ValueError``).
        LayerIdInvalid: an id in it is blank (a ``ValueError``).

    Example:
        >>> list_layer_ids(("a", "b"), where="engine")
        ['a', 'b']
    """
    if layer_ids is None or isinstance(layer_ids, str):
        raise SettingInvalid(f"{where}: the layers are {layer_ids!r}, expected a list of layer ids.")
    return [check_layer_id(layer, where=where) for layer in layer_ids]


def _depth_first(needs: Mapping[str, Iterable[str]], roots: Iterable[str]) -> list[str]:
    """Everything reachable from ``roots``, dependencies first."""
    order: dict[str, None] = {}
    for root in roots:
        path: dict[str, Iterator[str]] = {} if root in order else {root: iter(needs.get(root, ()))}
        while path:
            layer, rest = next(reversed(path.items()))
            needed = next((other for other in rest if other not in order), None)
            if needed is None:
                order[layer] = None
                del path[layer]
            elif needed in path:
                raise cycle_error(_WHERE, [*_tail(path, needed), needed])
            else:
                path[needed] = iter(needs.get(needed, ()))
    return list(order)


def _tail(path: Iterable[str], start: str) -> list[str]:
    layers = list(path)
    return layers[layers.index(start) :]


def _nearest(needs: Mapping[str, Iterable[str]], layer: str, wanted: Mapping[str, None]) -> set[str]:
    found: set[str] = set()
    seen: set[str] = set()
    queue = list(needs.get(layer, ()))
    while queue:
        other = queue.pop()
        if other in wanted:
            found.add(other)
        elif other not in seen:
            seen.add(other)
            queue.extend(needs.get(other, ()))
    return found


def cycle_error(where: str, cycle: list[str]) -> DependencyCycle:
    """The error that names a circle of layers.

    Example:
        >>> str(cycle_error("engine", ["a", "b", "a"]))
        'engine: the layers need each other in a circle: a -> b -> a. Remove one of these dependencies.'
    """
    circle = " -> ".join(cycle)
    return DependencyCycle(
        f"{where}: the layers need each other in a circle: {circle}. Remove one of these dependencies.", cycle=cycle
    )
