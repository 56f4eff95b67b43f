"""Generator memory: where Python and NumPy keep the words of their generators, to copy them as bytes.

Their own calls make an object of each of 624 words, which takes longer than all else a run does between two batches.
Where the words lie is tried on generators made for it, by reading and by writing. Where they are not found (another
Python, another bit generator) those calls serve.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

_PYTHON = struct.Struct("i624I")  # the place among the words, and these
_NUMPY = struct.Struct("624Ii")  # the other way round
_NORMAL = struct.Struct("id")  # whether the second normal of a pair waits, and which it is


class Held(Protocol):
    """One generator whose state can be taken, and be put back."""

    @property
    def take(self) -> Callable[[], Any]:
        """Give the state, in a form of its own."""
        ...

    @property
    def put(self) -> Callable[[Any], None]:
        """Be in that state again."""
        ...


def memory(address: int, size: int) -> memoryview:
    """So many bytes from an address on; whoever has them sees to it that what lies there stays alive."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


class ByCalls(NamedTuple):
    """A generator by the calls it has for that."""

    take: Callable[[], Any]
    put: Callable[[Any], None]


class PythonWords:
    """A generator of ``random`` in memory.

    Example:
        >>> words = PythonWords(one := random.Random(3))
        >>> taken, first = words.take(), one.random()
        >>> words.put(taken)
        >>> one.random() == first
        True
    """

    def __init__(self, generator: random.Random) -> None:
        self._generator: Any = generator
        self._words = memory(id(generator) + object.__basicsize__, _PYTHON.size)

    def take(self) -> tuple[bytes, float | None]:
        """Give the words, and the second normal of a pair."""
        return self._words.tobytes(), self._generator.gauss_next

    def put(self, taken: tuple[bytes, float | None]) -> None:
        """Be in that state again."""
        self._words[:], self._generator.gauss_next = taken


class NumpyWords:
    """A ``RandomState`` over a Mersenne twister in memory; ``normal_at`` is where it keeps half a pair of normals.

    Example:
        >>> one = np.random.RandomState(3)
        >>> words = NumpyWords(one, normal_at=where_normals_wait())
        >>> first, taken, second = one.normal(), words.take(), one.normal()
        >>> words.put(taken)
        >>> one.normal() == second
        True
    """

    def __init__(self, generator: np.random.RandomState, *, normal_at: int) -> None:
        bits: Any = generator._bit_generator
        self._generator, self._bits = generator, bits  # alive, as long as this knows their addresses
        self._lock = bits.lock  # holds off what other threads draw, as their own calls do
        self._words = memory(bits.ctypes.state_address, _NUMPY.size)
        self._normal = memory(id(generator) + normal_at, _NORMAL.size)

    def take(self) -> tuple[bytes, bytes]:
        """Give the words, and the second normal of a pair."""
        with self._lock:
            return self._words.tobytes(), self._normal.tobytes()

    def put(self, taken: tuple[bytes, bytes]) -> None:
        """Be in that state again."""
        with self._lock:
            self._words[:], self._normal[:] = taken


def held_by_python() -> Held:
    """The global generator of ``random``."""
    generator: Any = random.random.__self__  # type: ignore[attr-defined]
    if type(generator) is random.Random and is_where_python_keeps_it():
        return PythonWords(generator)
    return ByCalls(random.getstate, random.setstate)


def held_by_numpy(bits: Any) -> Held:
    """The global generator of ``numpy.random``, which draws from ``bits``."""
    normal_at = where_normals_wait() if type(bits) is np.random.MT19937 else None
    if normal_at is None:
        return ByCalls(lambda: np.random.get_state(legacy=False), np.random.set_state)
    return NumpyWords(np.random.mtrand._rand, normal_at=normal_at)


@cache
def is_where_python_keeps_it() -> bool:
    """Whether a generator of ``random`` has its words where :class:`PythonWords` looks for them."""
    if sys.implementation.name != "cpython" or random.Random.__basicsize__ < object.__basicsize__ + _PYTHON.size:
        return False
    one, other = random.Random(1), random.Random(2)
    words = PythonWords(one)
    _, (*known, place), _ = one.getstate()
    if words.take()[0] != _PYTHON.pack(place, *known):
        return False
    words.put(PythonWords(other).take())
    return one.getstate() == other.getstate()


@cache
def where_normals_wait() -> int | None:
    """How far into a ``RandomState`` it keeps half a pair of normals.

    None if that is not found, or the words are not where :class:`NumpyWords` looks for them.
    """
    if sys.implementation.name != "cpython":
        return None
    one, other = (np.random.RandomState(seed) for seed in (1, 2))
    one.normal(), other.normal()
    state: Any = one.get_state(legacy=False)
    held = memory(id(one), np.random.RandomState.__basicsize__)
    normal_at = held.tobytes().find(_NORMAL.pack(state["has_gauss"], state["gauss"]))
    if normal_at < 0:
        return None
    words = NumpyWords(one, normal_at=normal_at)
    if words.take()[0] != _NUMPY.pack(*state["state"]["key"].tolist(), state["state"]["pos"]):
        return None
    words.put(NumpyWords(other, normal_at=normal_at).take())
    return normal_at if repr(one.get_state()) == repr(other.get_state()) else None
