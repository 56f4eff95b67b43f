"""Taken generators: the global generators of a program, taken and set as they are.

Between every two batches of a stream they are swapped, so nothing is turned into data that could be written to a file.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np

from model_checkpoint.integrations.feeding.generators.generator_memory import Held, held_by_numpy, held_by_python

_python = held_by_python()
_drawn: Any = np.random
_numpy = lru_cache(maxsize=2)(held_by_numpy)  # a program may give NumPy another bit generator at any time


# Python's, what NumPy draws from, who holds it and how, torch's, those of its devices: None where torch is not used
TakenGenerators = tuple[Any, Any, Held, Any, Any, Any]


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
    held = _numpy(bits := _drawn.get_bit_generator())
    torch = sys.modules.get("torch")
    if torch is None:
        return _python.take(), bits, held, held.take(), None, None
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return _python.take(), bits, held, held.take(), torch.default_generator.get_state(), cuda


def set_generators(taken: TakenGenerators) -> None:
    """Set the generators to what was taken."""
    python, bits, held, numpy, cpu, cuda = taken
    _python.put(python)
    if _drawn.get_bit_generator() is not bits:
        _drawn.set_bit_generator(bits)
    held.put(numpy)
    if cpu is not None:
        torch = sys.modules["torch"]
        torch.default_generator.set_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
