"""Held generators: those that a dataset, a sampler or whatever makes batches holds, however it holds them.

They may lie in attributes, of an object or its class, and slots, in containers, and in what comes with a function: what
it is bound to, what it was made around, its defaults, names of its module. Nobody seeds those per worker, and no
library saves them. They are looked for at every batch, so what all objects of a class share is looked up once.
"""

from __future__ import annotations

import random
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from types import BuiltinMethodType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

MADE_LATE = "a generator is made while the data is read, so a resumed run begins with a new one: make it before the run"
UNSEARCHED = "the dataset has too many parts to look for generators in all of them"
_DEEPEST = 16  # datasets in datasets, their transforms, lists of them, parts of those
_MOST_ITEMS = 64  # of a list or dict that is looked into: longer ones are data
_MOST_PARTS = 4096
_CONTAINERS = (list, tuple, dict)
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
    found: list[Any] = []
    level = [owner]
    known: dict[int, Any] = {id(besides): besides}  # holds what it knows, so that no other part gets its id
    for _ in range(_DEEPEST):
        inside: list[Any] = []
        for one in level:
            parts_of = _ways[type(one)]
            if parts_of is None or id(one) in known:
                continue
            if parts := parts_of(one):  # modules have twenty empty containers each
                known[id(one)] = one
                inside += parts
            elif parts_of is _no_parts and not any(one is shared for shared in (*_of_the_program(), *found)):
                found.append(one)
        if not inside:
            return found, True
        if len(known) > _MOST_PARTS:
            return found, False
        level = inside
    return found, all(id(one) in known or isinstance(one, _plain_classes()) for one in level)


_Parts = Callable[[Any], Iterable[Any]]


class _Ways(dict[type, "_Parts | None"]):
    """How the parts of objects of a class are told, worked out once for each class."""

    def __missing__(self, kind: type) -> _Parts | None:
        if len(self) >= _MOST_PARTS:
            self.clear()  # a program may make classes without end
        way = self[kind] = _parts_of(kind)
        return way


_ways = _Ways()


def _parts_of(kind: type) -> _Parts | None:
    """What tells the parts of objects of this class; None where none of them can hold a generator."""
    if issubclass(kind, _plain_classes()):
        return None
    if issubclass(kind, _generator_classes()):
        return _no_parts
    ways: tuple[tuple[Any, _Parts], ...] = (
        (dict, lambda one: one.values() if len(one) < _MOST_ITEMS else ()),
        ((list, tuple), lambda one: one if len(one) < _MOST_ITEMS else ()),
        (partial, lambda one: (one.func, one.args, one.keywords)),
        (MethodType, lambda one: (one.__self__, one.__func__)),
        (BuiltinMethodType, lambda one: (one.__self__,)),
        (FunctionType, _brought_by),
    )
    return next((parts for classes, parts in ways if issubclass(kind, classes)), None) or _Attributes(kind).of


def _no_parts(generator: Any) -> tuple[Any, ...]:
    """A generator itself."""
    return ()


class _Attributes:
    """What objects of one class hold, in themselves and by their class."""

    def __init__(self, kind: type) -> None:
        defined = [pair for base in reversed(kind.__mro__) for pair in vars(base).items()]
        functions = [one for _, value in defined for one in _functions_in(value)]
        self._kind = kind
        self._slots = [name for name, value in defined if isinstance(value, MemberDescriptorType)]
        self._shared = [name for name, value in dict(defined).items() if _may_be_generator(value)]
        self._named = list({(id(pair[0]), pair[1]): pair for one in functions for pair in _named_by(one)}.values())

    def of(self, one: Any) -> list[Any]:
        """The parts of one of them."""
        parts = list(getattr(one, "__dict__", {}).values())
        if self._slots:
            parts += [getattr(one, name, None) for name in self._slots]
        if self._shared:
            parts += [getattr(self._kind, name, None) for name in self._shared]
        if self._named:
            parts += [names.get(name) for names, name in self._named]
        return parts


def _functions_in(value: Any) -> list[FunctionType]:
    """The functions behind a name of a class."""
    inner = [value.fget, value.fset] if isinstance(value, property) else [getattr(value, "__func__", value)]
    if isinstance(value, cached_property):
        inner = [value.func]
    return [one for one in inner if isinstance(one, FunctionType)]


def _may_be_generator(value: Any) -> bool:
    """Whether a name that is shared has a generator, or waits for one to be made when it is needed."""
    return value is None or isinstance(value, _generator_classes())


def _brought_by(function: FunctionType) -> list[Any]:
    """What a function holds of the place where it was made, and the generators of its module that it names."""
    parts = _made_around(function) if function.__closure__ else []
    for names, name in _named_by(function):
        parts.append(names.get(name))
    for kept in (function.__defaults__, function.__kwdefaults__, function.__dict__):
        if kept:
            parts.append(kept)
    return parts


def _made_around(function: FunctionType) -> list[Any]:
    """What the cells of a function hold."""
    found: list[Any] = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not filled yet
            found.append(cell.cell_contents)
    return found


_Named = tuple[dict[str, Any], str]  # the names of a module, and one of them
_called: weakref.WeakKeyDictionary[FunctionType, tuple[_Named, ...]] = weakref.WeakKeyDictionary()


def _named_by(function: FunctionType) -> tuple[_Named, ...]:
    """The generators that a function uses by names of its module, and those of functions it calls there."""
    known_pairs = _called.get(function)
    if known_pairs is None:
        names, found = function.__globals__, _kept_by(function)
        known = {function.__code__}
        waiting = [function.__code__]
        for code in waiting:
            for name in _names(code):
                if name not in names:
                    continue
                one = names[name]
                if _may_be_generator(one):
                    found.append((names, name))
                elif isinstance(one, FunctionType) and one.__globals__ is names and one.__code__ not in known:
                    known.add(one.__code__)
                    waiting.append(one.__code__)
                    found += _kept_by(one)
        known_pairs = _called[function] = tuple(found)
    return known_pairs


def _kept_by(function: FunctionType) -> list[_Named]:
    """The generators in the defaults and the cells of a function, as if each were a name of a module."""
    kept = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *_made_around(function))
    return [({"": one}, "") for one in kept if isinstance(one, _generator_classes())]


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
