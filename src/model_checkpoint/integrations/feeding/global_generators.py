"""Taken generators: the global generators of a program, taken and set as they are.

Between every two batches of a stream they are swapped, so nothing is turned into data that could be written to a file.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from model_checkpoint.integrations.feeding.generator_memory import held_by_numpy, held_by_python

_python = held_by_python()
_drawn: Any = np.random
_numpy = lru_cache(maxsize=2)(held_by_numpy)  # a program may give NumPy another bit generator at any time


class TakenGenerators(NamedTuple):
    """The states of the generators of Python, NumPy and torch, each in a form of its own."""

    python: Any
    bits: Any  # what NumPy draws from
    numpy: Any
    torch: Any = None  # None where the program does not use it
    cuda: Any = None


def take_generators() -> TakenGenerators:
    """The generators as they are now.

    Example:
        >>> import random
        >>> taken = take_generators()
        >>> first = random.random()
        >>> set_generators(taken)
        >>> random.random() == first
        True
    """
    bits = _drawn.get_bit_generator()
    torch = sys.modules.get("torch")
    if torch is None:
        return TakenGenerators(_python.take(), bits, _numpy(bits).take())
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return TakenGenerators(_python.take(), bits, _numpy(bits).take(), torch.default_generator.get_state(), cuda)


def set_generators(taken: TakenGenerators) -> None:
    """Set the generators to what was taken."""
    _python.put(taken.python)
    if _drawn.get_bit_generator() is not taken.bits:
        _drawn.set_bit_generator(taken.bits)
    _numpy(taken.bits).put(taken.numpy)
    if taken.torch is not None:
        torch = sys.modules["torch"]
        torch.default_generator.set_state(taken.torch)
        if taken.cuda is not None:
            torch.cuda.set_rng_state_all(taken.cuda)
