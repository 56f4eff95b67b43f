"""Held generators: those that a dataset, a sampler or whatever makes batches holds, however it holds them.

They may lie in attributes, of an object or its class, and slots, in containers and caches, and in what comes with a
function: what it is bound to, what it was made around, its defaults, names of its module. Nobody seeds those per
worker, and no library saves them. They are looked for at every batch, so what all objects of a class share, and what a
function names, is looked up once.
"""

from __future__ import annotations

import builtins
import dis
import gc
import itertools
import logging
import random
import sys
import sysconfig
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, cached_property, partial
from itertools import chain
from pathlib import Path, PurePath
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy as np

MADE_LATE = "a generator is made while the data is read, so a resumed run begins with a new one: make it before the run"
UNSEARCHED = "the dataset has too many parts to look for generators in all of them"
UNSETTABLE = "the data draws from a random.SystemRandom, which nobody can set: use a random.Random"
SPAWNING = "the data holds a SeedSequence, and nobody saves how many it has spawned: spawn them when it is made"
RUNNING = "the data holds an iterator, and nobody saves how far it is: make it where it is used"
_DEEPEST = 16  # datasets in datasets, their transforms, lists of them, parts of those
_MOST_ITEMS = 64  # of a list or dict that is looked into: longer ones are data, unless they are of generators
_MOST_PARTS = 4096
_OURS = str(Path(__file__).parents[3])
_CONTAINERS = (list, tuple, deque)
_PLAIN = (np.ndarray, str, bytes, int, float, complex, type(None), type, ModuleType, logging.Logger)
_METHODS = (FunctionType, staticmethod, classmethod, property, cached_property)
_OF_MODULE = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
_CACHED = type(cache(lambda: None))
_BEGUN = (
    *(GeneratorType, map, filter, zip, enumerate, reversed),
    *map(type, (iter([]), iter(()), iter(range(0)))),
    *(one for one in vars(itertools).values() if isinstance(one, type)),
)


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
    return search([owner], {id(besides): besides})[0]


def doubts_about(owner: Any, *, besides: Any = None) -> tuple[str, ...]:
    """Why not all that ``owner`` draws from can be found, set and put back.

    Example:
        >>> doubts_about([[[5]]])
        ()
        >>> doubts_about({"steps": iter([1, 2])})
        ('the data holds an iterator, and nobody saves how far it is: make it where it is used',)
    """
    return search([owner], {id(besides): besides})[1]


def search(level: list[Any], known: dict[int, Any], *, most: int = _MOST_PARTS) -> tuple[list[Any], tuple[str, ...]]:
    """The generators among parts, their parts and so on; and what could not be found or is none to be set.

    What is ``known`` is passed over, and what was looked into is known then: held, so that no other part gets its id.
    """
    found: list[Any] = []
    doubts: dict[str, None] = {}
    most += len(known)
    known |= {id(one): one for one in _of_the_program()}
    for _ in range(_DEEPEST):
        inside: list[Any] = []
        for one in level:
            parts_of = ways[type(one)]
            if parts_of is None or id(one) in known:
                continue
            if parts := parts_of(one):  # modules have twenty empty containers each
                known[id(one)] = one
                inside += parts
            elif parts_of is _no_parts:
                known[id(one)] = one
                found.append(one)
            elif parts_of in _DOUBTFUL:
                doubts[_DOUBTFUL[parts_of]] = None
        if not inside:
            return found, tuple(doubts)
        if len(known) > most:
            return found, (UNSEARCHED, *doubts)
        level = inside
    whole = all(id(one) in known or isinstance(one, _plain_classes()) for one in level)
    return found, tuple(doubts) if whole else (UNSEARCHED, *doubts)


_Parts = Callable[[Any], Iterable[Any]]


class _Ways(dict[type, "_Parts | None"]):
    """How the parts of objects of a class are told, worked out once for each class."""

    def __missing__(self, kind: type) -> _Parts | None:
        if len(self) >= _MOST_PARTS:
            self.clear()  # a program may make classes without end
        way = self[kind] = _parts_of(kind)
        return way


ways = _Ways()


def _parts_of(kind: type) -> _Parts | None:
    """What tells the parts of objects of this class; None where none of them can hold a generator."""
    if issubclass(kind, _plain_classes()) or _is_ours(kind):
        return None
    ways: tuple[tuple[Any, _Parts], ...] = (
        (random.SystemRandom, _unsettable),
        (np.random.SeedSequence, _spawning),
        (generator_classes(), _no_parts),
        (_BEGUN, _running),
        (_loader_classes(), lambda one: [part for name, part in vars(one).items() if name != "_iterator"]),
        (dict, lambda one: _few(one, one.values())),
        (_CONTAINERS, lambda one: _few(one, one)),
        (partial, lambda one: (one.func, one.args, one.keywords)),
        (MethodType, lambda one: (one.__self__, one.__func__)),
        ((BuiltinMethodType, MethodWrapperType), lambda one: (one.__self__,)),
        (FunctionType, _brought_by),
        (_CACHED, lambda one: (one.__wrapped__, *_few(held := gc.get_referents(one), held))),
        (ContextVar, lambda one: (one.get(None),)),
    )
    return next((parts for classes, parts in ways if issubclass(kind, classes)), None) or _Attributes(kind).of


def _loader_classes() -> tuple[type, ...]:
    """Whatever keeps the iterator of workers that live on, and begins it anew."""
    torch = sys.modules.get("torch.utils.data")
    return () if torch is None else (torch.DataLoader,)


def _few(one: Any, items: Iterable[Any]) -> Iterable[Any]:
    """The items of a container that is looked into."""
    looked_into = len(one) < _MOST_ITEMS or isinstance(next(iter(items)), generator_classes())
    return list(items) if looked_into else ()


def _no_parts(generator: Any) -> tuple[Any, ...]:
    """A generator itself."""
    return ()


def _unsettable(generator: Any) -> tuple[Any, ...]:
    """One without a state."""
    return ()


def _spawning(sequence: Any) -> tuple[Any, ...]:
    """What seeds are made of."""
    return ()


def _running(iterator: Any) -> tuple[Any, ...]:
    """Something that may have begun."""
    return ()


_DOUBTFUL: dict[_Parts, str] = {_unsettable: UNSETTABLE, _spawning: SPAWNING, _running: RUNNING}


class _Attributes:
    """What objects of one class hold, in themselves and by their class."""

    def __init__(self, kind: type) -> None:
        defined = [(base, *pair) for base in reversed(kind.__mro__) for pair in vars(base).items()]
        functions = [one for _, _, value in defined for one in _functions_in(value)]
        self._kind = kind
        self._slots = [value for _, _, value in defined if isinstance(value, MemberDescriptorType)]
        newest = {name: (value, base) for base, name, value in defined}
        self._shared = [name for name, (value, base) in newest.items() if _is_shared(name, value, of=base)]
        self._named = list({(id(pair[0]), pair[1]): pair for one in functions for pair in _named_by(one)}.values())

    def of(self, one: Any) -> list[Any]:
        """The parts of one of them."""
        parts = list(getattr(one, "__dict__", {}).values())
        if self._slots:
            parts += [_in_slot(slot, one) for slot in self._slots]
        if self._shared:
            parts += [getattr(self._kind, name, None) for name in self._shared]
        if self._named:
            parts += [names.get(name) for names, name in self._named]
        return parts


def _in_slot(slot: MemberDescriptorType, one: Any) -> Any:
    """What an object holds there; by its own ``__getattr__`` it might make something."""
    with suppress(AttributeError):
        return slot.__get__(one)
    return None


def _is_shared(name: str, value: Any, *, of: type) -> bool:
    """Whether all objects of a class may draw from what it has under that name."""
    return not name.startswith(("__", "_abc_")) and _may_hold(value, own=is_own_class(of))


def _functions_in(value: Any) -> list[FunctionType]:
    """The functions behind a name of a class."""
    inner = [value.fget, value.fset] if isinstance(value, property) else [getattr(value, "__func__", value)]
    if isinstance(value, cached_property):
        inner = [value.func]
    return [one for one in inner if isinstance(one, FunctionType)]


def _may_hold(value: Any, *, own: bool) -> bool:
    """Whether a name that is shared has a generator, in the program's own code also what holds one, or none yet."""
    if value is None or isinstance(value, generator_classes()):
        return True
    return own and not isinstance(value, (*_plain_classes(), *_METHODS))


def _brought_by(function: FunctionType) -> list[Any]:
    """What a function holds of the place where it was made, and what it names that may hold generators."""
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


_Named = tuple[Mapping[str, Any], str]  # the names of a module or a class, and one of them
_called: weakref.WeakKeyDictionary[FunctionType, tuple[_Named, ...]] = weakref.WeakKeyDictionary()


def _named_by(function: FunctionType) -> tuple[_Named, ...]:
    """What a function names that may hold generators, and what those functions and classes name that it names."""
    known_pairs = _called.get(function)
    if known_pairs is None:
        found: list[_Named] = []
        waiting, known = [function], {function}
        for one in waiting:
            own = is_own(one.__globals__)
            for names, name in (*_names_of(one, own=own), *_kept_by(one)):
                value = names.get(name)
                called = [value] if isinstance(value, FunctionType) else []
                if isinstance(value, type) and own and is_own_class(value):
                    called, shared = in_class(value)
                    found += shared
                elif _may_hold(value, own=own):
                    found.append((names, name))
                called = [each for each in called if each not in known and (own or each.__globals__ is one.__globals__)]
                waiting += called
                known |= set(called)
        known_pairs = _called[function] = tuple(found)
    return known_pairs


def in_class(kind: type) -> tuple[list[FunctionType], list[_Named]]:
    """The functions of a class, and what it has that its objects share."""
    defined = [(base, *pair) for base in kind.__mro__ if is_own_class(base) for pair in vars(base).items()]
    functions = [one for _, _, value in defined for one in _functions_in(value)]
    return functions, [(vars(base), name) for base, name, value in defined if _is_shared(name, value, of=base)]


def _kept_by(function: FunctionType) -> list[_Named]:
    """The defaults and the cells of a function, as if each were a name of a module."""
    kept = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *_made_around(function))
    return [({"": one}, "") for one in kept if one is not None]


def _names_of(function: FunctionType, *, own: bool) -> Iterator[_Named]:
    """The names a function uses, of its module and, in the program's own code, of modules that it names.

    There also those that its module does not have yet.
    """
    names, code = function.__globals__, function.__code__
    if not own:
        yield from ((names, name) for name in _names(code) if name in names)
        return
    modules = list[dict[str, Any]]()
    for name in dict.fromkeys(_global_names(code)):
        value = names.get(name)
        if isinstance(value, ModuleType):
            modules += _own_names(value)
        elif name in names or not hasattr(builtins, name):
            yield names, name
    used = dict.fromkeys(_names(code))
    for inner in modules:
        for name in used:
            value = inner.get(name)
            if isinstance(value, ModuleType) and not any(vars(value) is one for one in modules):
                modules += _own_names(value)
            elif name in inner:
                yield inner, name


def _own_names(module: ModuleType) -> list[dict[str, Any]]:
    """The names of a module of the program itself; nothing of any other."""
    return [vars(module)] if is_own(vars(module)) else []


def _names(code: CodeType) -> Iterator[str]:
    """All names in code, those of attributes too."""
    return chain.from_iterable(one.co_names for one in _codes(code))


def _global_names(code: CodeType) -> Iterator[str]:
    """The names in code that are of its module."""
    return (one.argval for each in _codes(code) for one in dis.get_instructions(each) if one.opname in _OF_MODULE)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Code, and that of what is defined in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _is_ours(kind: type) -> bool:
    """Whether it is of this library, which hangs hooks that lead to all it knows into what is trained."""
    module = sys.modules.get(kind.__module__)
    ours = kind.__module__.startswith(f"{__name__.partition('.')[0]}.")
    return ours and vars(module).get(kind.__name__) is kind


def is_own_class(kind: type) -> bool:
    """Whether the program itself defines it."""
    module = sys.modules.get(kind.__module__)
    return module is None or is_own(vars(module))


def is_own(names: Mapping[str, Any]) -> bool:
    """Whether these are the names of a module of the program itself, not of one that was installed."""
    file = names.get("__file__")
    return names.get("__spec__") is None if file is None else not is_installed(file)


@cache
def is_installed(file: str) -> bool:
    """Whether a file is of a library, this one too, or of Python itself."""
    installed = file.startswith(_OURS) or not {"site-packages", "dist-packages"}.isdisjoint(PurePath(file).parts)
    return installed or file.startswith((sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")))


def generator_classes() -> tuple[type, ...]:
    """Whatever numbers are drawn from."""
    torch = sys.modules.get("torch")
    known = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
    return known if torch is None else (*known, torch.Generator)


def _of_the_program() -> tuple[Any, ...]:
    """The generators that all share, which are taken with the program's."""
    torch = sys.modules.get("torch")
    own: Any = np.random.mtrand._rand
    known = (random.random.__self__, own, own._bit_generator)  # type: ignore[attr-defined]
    return known if torch is None else (*known, torch.default_generator)


def _plain_classes() -> tuple[type, ...]:
    torch = sys.modules.get("torch")
    return _PLAIN if torch is None else (*_PLAIN, torch.Tensor)
