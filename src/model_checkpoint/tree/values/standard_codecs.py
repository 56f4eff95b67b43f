"""Standard codecs: what containers, paths and random generators of Python and NumPy become in a tree.

A generator is saved as its state and comes back as a generator that goes on where the saved one stood.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, NamedTuple

import numpy as np
from numpy.random import MT19937, PCG64, PCG64DXSM, SFC64, BitGenerator, Generator, Philox, RandomState, SeedSequence

from model_checkpoint.errors import UnsupportedType

# a checkpoint may make these and no other: a factory is called later, by whoever reads a missing key
_FACTORIES = (int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, Counter, OrderedDict, deque)
_MOST_POOL = 64
_MT_WORDS, _PHILOX_WORDS = 624, 4
_BIT_GENERATORS = {cls.__name__: cls for cls in (MT19937, PCG64, PCG64DXSM, Philox, SFC64)}


class StandardCodec(NamedTuple):
    """How a class is saved; ``fill`` writes a saved state into a live one."""

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


def _legacy_state(generator: RandomState) -> dict[str, Any]:
    state: Any = generator.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        raise UnsupportedType(f"a RandomState over {state['bit_generator']}; NumPy itself sets only MT19937")
    return dict(state)


def _set_legacy(generator: RandomState, state: Any) -> None:
    generator.set_state(numpy_state(state))


def _generator_state(generator: Generator) -> dict[str, Any]:
    bits = generator.bit_generator
    seed: Any = bits.seed_seq
    return {"state": bits.state, "seed": dict(seed.state) if type(seed) is SeedSequence else None}


def _set_generator(generator: Generator, state: Any) -> None:
    generator.bit_generator.state = numpy_state(state["state"])


def numpy_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a generator's state with NumPy's arrays, whichever framework it was loaded with.

    NumPy believes the positions in it and would read beyond its own tables.
    """
    inner = state["state"]
    position, at = inner.get("pos", 0), state.get("buffer_pos", 0)
    if not 0 <= position <= _MT_WORDS or not 0 <= at <= _PHILOX_WORDS:
        raise ValueError(f"a generator at position {position or at} of its words")
    whole = {key: _plain(value) for key, value in state.items()}
    return {**whole, "state": {key: _plain(value) for key, value in inner.items()}}


def _plain(value: Any) -> Any:
    return np.asarray(value) if hasattr(value, "__array__") else value


def _made_random(state: Any) -> random.Random:
    made = random.Random()
    set_random_state(made, state)
    return made


def _made_legacy(state: Any) -> RandomState:
    made = RandomState()
    _set_legacy(made, state)
    return made


def _made_generator(state: Any) -> Generator:
    seed = state["seed"]
    if seed is not None and not 0 < seed["pool_size"] <= _MOST_POOL:
        raise ValueError(f"a seed sequence with a pool of {seed['pool_size']}")
    bits: BitGenerator = _BIT_GENERATORS[state["state"]["bit_generator"]](
        None if seed is None else SeedSequence(**seed)
    )
    made = Generator(bits)
    _set_generator(made, state)
    return made


def _defaultdict(factory: Any) -> StandardCodec:
    name = defaultdict_name(defaultdict(factory)) or ""
    return StandardCodec(defaultdict, name, dict, lambda plain: defaultdict(factory, plain))


_PATHS = (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)
STANDARD = (
    StandardCodec(Counter, "collections.Counter", dict, Counter),
    StandardCodec(deque, "collections.deque", lambda q: (list(q), q.maxlen), lambda pair: deque(pair[0], pair[1])),
    *(StandardCodec(cls, f"{cls.__module__}.{cls.__qualname__}", str, cls) for cls in _PATHS),
    *map(_defaultdict, (None, *_FACTORIES)),
    StandardCodec(random.Random, "random.Random", random_state, _made_random, set_random_state),
    StandardCodec(RandomState, "numpy.random.RandomState", _legacy_state, _made_legacy, _set_legacy),
    StandardCodec(Generator, "numpy.random.Generator", _generator_state, _made_generator, _set_generator),
)
