"""Seeding: one seed out of several numbers; generators seeded, taken down and set back."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from model_checkpoint.integrations.feeding.generators.held_generators import own_generators

_MASK = (1 << 64) - 1
_program: Any = random.random.__self__  # type: ignore[attr-defined]
_seed_words = super(random.Random, _program).seed  # what random.seed comes to with a whole number


def mix(*words: int) -> int:
    """One 64-bit seed out of several numbers, so that neighbours have nothing in common.

    Example:
        >>> mix(1, 2) != mix(2, 1)
        True
    """
    return reduce(stir, map(int, words), 0)


def stir(seed: int, word: int) -> int:
    """One number more: whoever mixes many that begin alike mixes that beginning once.

    Example:
        >>> stir(mix(1, 2), 3) == mix(1, 2, 3)
        True
    """
    seed = (seed + word + 0x9E3779B97F4A7C15) & _MASK  # splitmix64
    seed = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    seed = ((seed ^ seed >> 27) * 0x94D049BB133111EB) & _MASK
    return seed ^ seed >> 31


def seed_all(seed: int, owner: Any = None) -> int:
    """Seed the global generators, and those ``owner`` holds, each differently; return how many it holds.

    Example:
        >>> seed_all(5)
        0
        >>> first = random.random()
        >>> seed_all(5, random.Random(3))
        1
        >>> random.random() == first
        True
    """
    _seed_words(seed)
    _program.gauss_next = None
    np.random.seed(seed & 0xFFFFFFFF)  # the generator that others draw from
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed >> 1)  # not torch.manual_seed, which takes a third of a millisecond
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed >> 1)
    if owner is None:
        return 0
    found = own_generators(owner)
    for number, one in enumerate(found):
        own = mix(seed, number)
        if isinstance(one, random.Random):
            one.seed(own)
        elif (bits := _bits_of(one)) is not None:
            bits.state = type(bits)(own).state
        elif isinstance(one, np.random.RandomState):
            one.seed(own & 0xFFFFFFFF)
        else:
            one.manual_seed(own >> 1)
    return len(found)


def _bits_of(one: Any) -> Any:
    """What a generator of NumPy draws from, which may be held bare too; None for any other."""
    bits = getattr(one, "bit_generator", one)
    return bits if isinstance(bits, np.random.BitGenerator) else None


def states_of(generators: Sequence[Any]) -> list[Any]:
    """What :func:`set_back` needs, as plain data and arrays.

    Example:
        >>> one = random.Random(3)
        >>> taken = states_of([one])
        >>> first = one.random()
        >>> set_back([one], taken)
        >>> one.random() == first
        True
    """
    return [_state_of(one) for one in generators]


def _state_of(one: Any) -> Any:
    if isinstance(one, random.Random):
        version, words, gauss = one.getstate()
        return [version, np.array(words, np.uint32), gauss]
    if (bits := _bits_of(one)) is not None:
        return bits.state
    return one.get_state(legacy=False) if isinstance(one, np.random.RandomState) else one.get_state()


def set_back(generators: Sequence[Any], states: Sequence[Any]) -> None:
    """Set each generator to its state; raise ``ValueError`` if there are more or fewer of them now."""
    for one, state in zip(generators, states, strict=True):
        if isinstance(one, random.Random):
            version, words, gauss = state
            one.setstate((version, tuple(int(word) for word in words), gauss))
        elif (bits := _bits_of(one)) is not None:
            bits.state = state
        else:
            one.set_state(state)
