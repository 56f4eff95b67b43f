"""Seeding: one seed out of several numbers; generators found, seeded, taken down and set back."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

_MASK = (1 << 64) - 1
_DEEPEST = 16  # datasets in datasets, their transforms, lists of them, parts of those
_MOST_ITEMS = 64  # of a list or dict that is looked into: longer ones are data
_MOST_PARTS = 4096
_PLAIN = (np.ndarray, str, bytes, int, float, complex, type(None), type, ModuleType, FunctionType)


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


def own_generators(owner: Any) -> list[Any]:
    """Generators in a dataset and its transforms, however they hold them; nobody seeds those per worker.

    Example:
        >>> class Noisy:
        ...     def __init__(self): self.rng = np.random.default_rng(0)
        >>> own_generators([{"steps": [Noisy(), 5]}])
        [Generator(PCG64) at ...]
    """
    return _search(owner)[0]


def is_searched(owner: Any) -> bool:
    """Whether it was small enough to be searched for generators to the end.

    Example:
        >>> is_searched([[[5]]])
        True
    """
    return _search(owner)[1]


def _search(owner: Any) -> tuple[list[Any], bool]:
    """The generators among the parts, their parts and so on; and whether all of these were looked at."""
    generators, plain = _generator_classes(), _plain_classes()
    found, level = list[Any](), [owner]
    known: dict[int, Any] = {}  # holds what it knows, so that no other part gets its id
    for _ in range(_DEEPEST):
        inside: list[Any] = []
        for one in level:
            if isinstance(one, plain) or id(one) in known:
                continue
            known[id(one)] = one
            if isinstance(one, generators):
                found.append(one)
            else:
                inside += _parts(one)
        if len(known) > _MOST_PARTS:
            return found, False
        level = inside
    return found, True


def _parts(one: Any) -> Iterable[Any]:
    if isinstance(one, (list, tuple, dict)):
        items = one.values() if isinstance(one, dict) else one
        return items if len(one) < _MOST_ITEMS else ()
    return list(getattr(one, "__dict__", {}).values())


def _generator_classes() -> tuple[type, ...]:
    torch = sys.modules.get("torch")
    known = (random.Random, np.random.Generator, np.random.RandomState)
    return known if torch is None else (*known, torch.Generator)


def _plain_classes() -> tuple[type, ...]:
    torch = sys.modules.get("torch")
    return _PLAIN if torch is None else (*_PLAIN, torch.Tensor)


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
