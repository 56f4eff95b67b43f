"""Taken generators: the global generators of a program, taken and set as they are.

Between every two batches of a stream they are swapped, so nothing is turned into data that could be written to a file.
"""

from __future__ import annotations

import random
import sys
from typing import Any, NamedTuple

import numpy as np


class TakenGenerators(NamedTuple):
    """The states of the generators of Python, NumPy and torch, each in a form of its own."""

    python: Any
    numpy: Any
    torch: Any = None  # None where the program does not use it
    cuda: Any = None


def take_generators() -> TakenGenerators:
    """The generators as they are now.

    Example:
        >>> taken = take_generators()
        >>> first = random.random()
        >>> set_generators(taken)
        >>> random.random() == first
        True
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return TakenGenerators(random.getstate(), np.random.get_state(legacy=False))
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return TakenGenerators(random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state(), cuda)


def set_generators(taken: TakenGenerators) -> None:
    """Set the generators to what was taken."""
    random.setstate(taken.python)
    np.random.set_state(taken.numpy)
    if taken.torch is not None:
        torch = sys.modules["torch"]
        torch.set_rng_state(taken.torch)
        if taken.cuda is not None:
            torch.cuda.set_rng_state_all(taken.cuda)
