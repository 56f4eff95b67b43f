"""Standard codecs: what a codec is, and what containers, paths and random generators of Python become in a tree.

A generator is saved as its state and comes back as a generator that goes on where the saved one stood.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, NamedTuple

import numpy as np

# a checkpoint may make these and no other: a factory is called later, by whoever reads a missing key
_FACTORIES = (int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, Counter, OrderedDict, deque)


class Codec(NamedTuple):
    """How one class is saved: under which name, as what, how it is made again, and how a live one is filled."""

    cls: type
    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    fill: Callable[[Any, Any], None] | None = None


def defaultdict_name(value: defaultdict[Any, Any]) -> str | None:
    """Return the name of the codec of a defaultdict, None if its factory cannot be saved.

    Example:
        >>> defaultdict_name(defaultdict(list)), defaultdict_name(defaultdict(lambda: 1))
        ('collections.defaultdict[list]', None)
    """
    factory = value.default_factory
    known = factory is None or factory in _FACTORIES
    return f"collections.defaultdict[{getattr(factory, '__name__', factory)}]" if known else None


def random_state(generator: Any) -> tuple[Any, ...]:
    """Return the state of a generator of Python's, or of the module :mod:`random`, with its words in an array.

    Example:
        >>> generator = random.Random(0)
        >>> state, first = random_state(generator), generator.random()
        >>> set_random_state(generator, state)
        >>> generator.random() == first
        True
    """
    version, words, gauss = generator.getstate()
    return version, np.array(words, np.uint32), gauss


def set_random_state(generator: Any, state: Any) -> None:
    """Set a generator of Python's to what :func:`random_state` returned, whichever framework it was loaded with."""
    version, words, gauss = state
    generator.setstate((version, tuple(int(word) for word in np.asarray(words)), gauss))


def _made_random(state: Any) -> random.Random:
    made = random.Random()
    set_random_state(made, state)
    return made


def _defaultdict(factory: Any) -> Codec:
    name = defaultdict_name(defaultdict(factory)) or ""
    return Codec(defaultdict, name, dict, lambda plain: defaultdict(factory, plain))


_PATHS = (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)
STANDARD = (
    Codec(Counter, "collections.Counter", dict, Counter),
    Codec(deque, "collections.deque", lambda q: (list(q), q.maxlen), lambda pair: deque(pair[0], pair[1])),
    *(Codec(cls, f"{cls.__module__}.{cls.__qualname__}", str, cls) for cls in _PATHS),
    *map(_defaultdict, (None, *_FACTORIES)),
    Codec(random.Random, "random.Random", random_state, _made_random, set_random_state),
)
