"""Hidden values: what the program's own datasets, samplers, modules and hooks keep in themselves and in no state.

They are found as generators are: in attributes and classes, wrapped datasets, transforms in lists, closures, hooks.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from types import CellType, FunctionType
from typing import Any

from model_checkpoint.integrations.around.carried_values import CONTAINERS, is_value
from model_checkpoint.integrations.feeding.generators.held_generators import is_own, is_own_class, ways

_DEEPEST, _MOST_PARTS = 16, 1 << 14
_EMPTY = CellType()
_NUMBERS = (bool, int, float, complex)


def hidden_values(roots: Iterable[Any]) -> dict[str, Any]:
    """All that may change, by class and name, or function and name.

    Example:
        >>> class Turning:
        ...     __module__, turn = "program", 5
        >>> hidden_values([[Turning()]])
        {'Turning.turn': 5}
    """
    found: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    level = [*roots, *(hook for one in roots for hook in _hooks_of(one))]
    own = {id(one) for one in level}  # their numbers are compared as those of the data
    for one in _objects_in(level):
        for name, value in _values_of(one):
            told = isinstance(value, _NUMBERS) and id(one) in own and not _is_module(one)
            if told or "cache" in name or not is_value(value):
                continue
            if isinstance(value, CONTAINERS):  # one that grows keeps what was read
                name = f"{name} ({len(value)} items)"
            seen[name] += 1
            found[name if seen[name] == 1 else f"{name} ({seen[name]})"] = value
    return found


def _objects_in(level: list[Any]) -> Iterator[Any]:
    """Parts, their parts and so on."""
    known: dict[int, Any] = {}
    for _ in range(_DEEPEST):
        inside: list[Any] = []
        for one in level:
            parts_of = ways[type(one)]
            if parts_of is not None and id(one) not in known:
                known[id(one)] = one
                yield one
                inside += parts_of(one)
        if len(known) > _MOST_PARTS:
            return
        level = inside


def _values_of(one: Any) -> Iterator[tuple[str, Any]]:
    """What one of them has that bears a name."""
    kind = type(one)
    if isinstance(one, FunctionType):
        if is_own(one.__globals__):
            for name, cell in zip(one.__code__.co_freevars, one.__closure__ or (), strict=True):
                if cell != _EMPTY:
                    yield f"{one.__name__}: {name}", cell.cell_contents
    elif kind.__module__.startswith("torch.utils.data"):  # the weights of a sampler
        yield from (
            (f"{kind.__name__}.{name}", value)
            for name, value in getattr(one, "__dict__", {}).items()
            if not isinstance(value, _NUMBERS)
        )
    elif is_own_class(kind) and not hasattr(kind, "set_epoch"):
        classes = (base for base in reversed(kind.__mro__) if is_own_class(base))
        values = {name: value for base in classes for name, value in vars(base).items() if name[:2] != "__"}
        values |= getattr(one, "__dict__", {})
        if _is_module(one):
            known = vars(sys.modules["torch"].nn.Module())
            values = {name: value for name, value in values.items() if name not in known}
            values |= {name: one._buffers[name] for name in one._non_persistent_buffers_set}
        yield from ((f"{kind.__name__}.{name}", value) for name, value in values.items())


def _hooks_of(one: Any) -> Iterator[Any]:
    """Those on the parameters of a module, which are no parts of it."""
    if _is_module(one):
        for each in one.parameters():
            if each._backward_hooks:
                yield dict(each._backward_hooks)


def _is_module(one: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(one, torch.nn.Module)
