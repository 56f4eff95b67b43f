"""NumPy generators: what random generators of NumPy become in a tree; imported when the first is met.

A generator is saved as its state and comes back as a generator that goes on where the saved one stood.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import MT19937, PCG64, PCG64DXSM, SFC64, BitGenerator, Generator, Philox, RandomState, SeedSequence

from model_checkpoint.errors import UnsupportedType
from model_checkpoint.tree.values.standard_codecs import Codec

_MOST_POOL = 64
_MT_WORDS, _PHILOX_WORDS = 624, 4
_BIT_GENERATORS = {cls.__name__: cls for cls in (MT19937, PCG64, PCG64DXSM, Philox, SFC64)}


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


NUMPY_GENERATORS = (
    Codec(RandomState, "numpy.random.RandomState", _legacy_state, _made_legacy, _set_legacy),
    Codec(Generator, "numpy.random.Generator", _generator_state, _made_generator, _set_generator),
)
