"""Seeding: one seed out of several numbers; generators found, seeded, taken down and set back."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

_MASK = (1 << 64) - 1
_DEEPEST = 3  # a dataset, its transform, a part of that
_MOST = 64  # items of a list that are looked into
_PLAIN = (np.ndarray, str, bytes, int, float, complex, type(None), type)


def mix(*words: int) -> int:
    """One 64-bit seed out of several numbers, so that neighbours have nothing in common.

    Example:
        >>> mix(1, 2) != mix(2, 1)
        True
    """
    seed = 0
    for word in words:  # splitmix64
        seed = (seed + int(word) + 0x9E3779B97F4A7C15) & _MASK
        seed = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        seed = ((seed ^ seed >> 27) * 0x94D049BB133111EB) & _MASK
        seed ^= seed >> 31
    return seed


def seed_all(seed: int, owner: Any = None) -> None:
    """Seed the global generators, and those ``owner`` holds in its attributes, each differently.

    Example:
        >>> seed_all(5)
        >>> first = random.random()
        >>> seed_all(5)
        >>> random.random() == first
        True
    """
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # the generator that others draw from
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed >> 1)
    for number, one in enumerate(own_generators(owner)):
        own = mix(seed, number)
        if isinstance(one, random.Random):
            one.seed(own)
        elif isinstance(one, np.random.Generator):
            one.bit_generator.state = type(one.bit_generator)(own).state
        elif isinstance(one, np.random.RandomState):
            one.seed(own & 0xFFFFFFFF)
        else:
            one.manual_seed(own >> 1)


def own_generators(owner: Any, depth: int = _DEEPEST) -> list[Any]:
    """Generators in the attributes of a dataset and its transforms, which nobody seeds per worker.

    Example:
        >>> class Noisy:
        ...     def __init__(self): self.rng = np.random.default_rng(0)
        >>> own_generators([Noisy(), 5])
        [Generator(PCG64) at ...]
    """
    if isinstance(owner, _generator_classes()):
        return [owner]
    if depth == 0 or isinstance(owner, _PLAIN) or _is_tensor(owner):
        return []
    inside: Iterable[Any] = getattr(owner, "__dict__", {}).values()
    if isinstance(owner, (list, tuple)):
        inside = owner if len(owner) < _MOST else ()
    found = [generator for one in inside for generator in own_generators(one, depth - 1)]
    return list({id(one): one for one in found}.values())


def _generator_classes() -> tuple[type, ...]:
    torch = sys.modules.get("torch")
    known = (random.Random, np.random.Generator, np.random.RandomState)
    return known if torch is None else (*known, torch.Generator)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


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
    if isinstance(one, np.random.Generator):
        return one.bit_generator.state
    return one.get_state(legacy=False) if isinstance(one, np.random.RandomState) else one.get_state()


def set_back(generators: Sequence[Any], states: Sequence[Any]) -> None:
    """Set each generator to its state; raise ``ValueError`` if there are more or fewer of them now."""
    for one, state in zip(generators, states, strict=True):
        if isinstance(one, random.Random):
            version, words, gauss = state
            one.setstate((version, tuple(int(word) for word in words), gauss))
        elif isinstance(one, np.random.Generator):
            one.bit_generator.state = state
        else:
            one.set_state(state)
