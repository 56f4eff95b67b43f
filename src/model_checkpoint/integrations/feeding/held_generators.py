"""Held generators: those that a dataset, a sampler or whatever makes batches holds, however it holds them.

They may lie in attributes and slots, in containers, and in what comes with a function: what it is bound to, what it was
made around, its defaults, names of its module. Nobody seeds those per worker, and no library saves them.
"""

from __future__ import annotations

import random
import sys
import weakref
from collections.abc import Iterable, Iterator
from functools import partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

_DEEPEST = 16  # datasets in datasets, their transforms, lists of them, parts of those
_MOST_ITEMS = 64  # of a list or dict that is looked into: longer ones are data
_MOST_PARTS = 4096
_CONTAINERS = (list, tuple, dict)
_PLAIN_TYPES = frozenset({str, bytes, bool, int, float, complex, type(None)})  # most of what there is
_PLAIN = (np.ndarray, str, bytes, int, float, complex, type(None), type, ModuleType)


def own_generators(owner: Any, *, besides: Any = None) -> list[Any]:
    """The generators in ``owner`` and in its parts, each once; what is ``besides`` is not looked into.

    Example:
        >>> class Noisy:
        ...     def __init__(self): self.rng = np.random.default_rng(0)
        >>> own_generators([{"steps": [Noisy(), 5]}])
        [Generator(PCG64) at ...]
        >>> own_generators(partial(print, Noisy().rng.random))
        [Generator(PCG64) at ...]
    """
    return _search(owner, besides)[0]


def is_searched(owner: Any, *, besides: Any = None) -> bool:
    """Whether it was small enough to be searched for generators to the end.

    Example:
        >>> is_searched([[[5]]])
        True
    """
    return _search(owner, besides)[1]


def _search(owner: Any, besides: Any) -> tuple[list[Any], bool]:
    """The generators among the parts, their parts and so on; and whether all of these were looked at."""
    generators, plain = _generator_classes(), _plain_classes()
    found, level = list[Any](), [owner]
    known: dict[int, Any] = {id(besides): besides}  # holds what it knows, so that no other part gets its id
    for _ in range(_DEEPEST):
        inside: list[Any] = []
        for one in level:
            if type(one) in _PLAIN_TYPES or id(one) in known or isinstance(one, plain):
                continue
            if isinstance(one, _CONTAINERS) and not one:
                continue  # modules have twenty such each
            known[id(one)] = one
            if isinstance(one, generators):
                found += [] if any(one is shared for shared in _of_the_program()) else [one]
            else:
                inside += _parts(one)
        if len(known) > _MOST_PARTS:
            return found, False
        level = inside
    return found, all(isinstance(one, plain) or id(one) in known for one in level)


def _parts(one: Any) -> Iterable[Any]:
    """What lies in a container or an object, or comes with what can be called."""
    if isinstance(one, _CONTAINERS):
        items = one.values() if isinstance(one, dict) else one
        return items if len(one) < _MOST_ITEMS else ()
    if isinstance(one, partial):
        return [one.func, one.args, one.keywords]
    if isinstance(one, (MethodType, BuiltinMethodType)):
        return [one.__self__, getattr(one, "__func__", None)]
    if isinstance(one, FunctionType):
        return _brought_by(one)
    shape = _shape_of(type(one))
    held = [getattr(one, name, None) for name in shape.slots]
    return [*getattr(one, "__dict__", {}).values(), *held, *(names[name] for names, name in shape.named)]


def _brought_by(function: FunctionType) -> list[Any]:
    """What a function holds of the place where it was made, and the generators of its module that it names."""
    cells: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    named = [names[name] for names, name in _named_by(function)]
    return [*cells, *named, function.__defaults__, function.__kwdefaults__, function.__dict__]


_Named = tuple[dict[str, Any], str]  # the names of a module, and one of them


class _Shape(NamedTuple):
    """What all objects of a class have in common: their slots, and the generators that their methods name."""

    slots: tuple[str, ...]
    named: tuple[_Named, ...]


_called: weakref.WeakKeyDictionary[FunctionType, tuple[_Named, ...]] = weakref.WeakKeyDictionary()
_shapes: weakref.WeakKeyDictionary[type, _Shape] = weakref.WeakKeyDictionary()


def _shape_of(kind: type) -> _Shape:
    if kind not in _shapes:
        inside = [vars(base) for base in kind.__mro__]
        slots = (one.get("__slots__", ()) for one in inside)
        names = [name for some in slots for name in ((some,) if isinstance(some, str) else some)]
        methods = [value for one in inside for value in one.values() if isinstance(value, FunctionType)]
        _shapes[kind] = _Shape(tuple(names), tuple(pair for one in methods for pair in _named_by(one)))
    return _shapes[kind]


def _named_by(function: FunctionType) -> tuple[_Named, ...]:
    """The generators of its module that a function uses, and those that functions it calls there use."""
    if function not in _called:
        names, kinds, found = function.__globals__, _generator_classes(), list[_Named]()
        known = {function.__code__}
        waiting = [function.__code__]
        for code in waiting:
            for name in _names(code):
                one = names.get(name)
                if isinstance(one, kinds):
                    found.append((names, name))
                elif isinstance(one, FunctionType) and one.__globals__ is names and one.__code__ not in known:
                    known.add(one.__code__)
                    waiting.append(one.__code__)
        _called[function] = tuple(found)
    return _called[function]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _generator_classes() -> tuple[type, ...]:
    torch = sys.modules.get("torch")
    known = (random.Random, np.random.Generator, np.random.RandomState)
    return known if torch is None else (*known, torch.Generator)


def _of_the_program() -> tuple[Any, ...]:
    """The generators that all share, which are taken with the program's."""
    torch = sys.modules.get("torch")
    known = (random.random.__self__, np.random.mtrand._rand)  # type: ignore[attr-defined]
    return known if torch is None else (*known, torch.default_generator)


def _plain_classes() -> tuple[type, ...]:
    torch = sys.modules.get("torch")
    return _PLAIN if torch is None else (*_PLAIN, torch.Tensor)
