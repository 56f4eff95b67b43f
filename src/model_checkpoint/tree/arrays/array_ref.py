"""Array ref: one array met in a state, before it is known which arrays share memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from model_checkpoint.manifest import Node
from model_checkpoint.state import ShardTarget, Target
from model_checkpoint.tree.values.dtypes import DType

HOST = ""  # the address space of the processor; devices have their own


class ArrayRef:
    """An array, where its bytes lie, and the node that stands for it; subclasses read it in windows and write it."""

    __slots__ = (
        "address",
        "attributes",
        "dtype",
        "flags",
        "frozen",
        "lead",
        "nbytes",
        "node",
        "shape",
        "space",
        "span",
        "strides",
        "value",
    )
    kind = ""
    on_ranks = False  # whether other ranks have parts of it
    live = True  # it is the caller's, so that no unverified byte may reach it

    def __init__(self, value: Any, dtype: DType, shape: tuple[int, ...], nbytes: int) -> None:
        self.value, self.dtype, self.shape, self.nbytes = value, dtype, shape, nbytes
        self.flags = ""  # what the framework must know of this reference
        self.frozen = False
        self.attributes: Node = None
        self.space: str | None = None  # None: memory nobody else can see
        self.address = 0  # lowest byte
        self.span = nbytes  # bytes from the lowest to the highest
        self.lead = 0  # bytes from the lowest to the first element
        self.strides: tuple[int, ...] | None = None  # in bytes; None when contiguous in C order
        self.node: list[Any] = []

    @property
    def plain(self) -> bool:
        """Whether the bytes in memory are the bytes to store, but for their order."""
        return not self.dtype.swapped

    def window(self, start: int, stop: int) -> memoryview:
        """Return the stored bytes ``[start, stop)``."""
        raise NotImplementedError(f"{type(self).__name__}: each kind of array shows its own bytes")

    @property
    def parts(self) -> Sequence[ArrayRef]:
        """The arrays that this process has of it."""
        return (self,)

    def why_not_written(self) -> str:
        """Return why no values can be written to the array in its place; "" if they can."""
        steps = zip(self.shape, self.strides or (), strict=False)
        if self.nbytes and any(side > 1 and step == 0 for side, step in steps):
            return "elements of the live array share memory (expanded?). Pass a contiguous copy"
        return ""

    def target(self) -> Target | ShardTarget | None:
        """Return what takes verified bytes directly, for an array that lies as it is stored; None if nothing can."""
        return self

    @property
    def buffer(self) -> memoryview | None:
        """All the bytes of an array that lies as it is stored, writable, if they lie on the host."""
        return None

    def put(self, start: int, data: memoryview) -> None:
        """Write ``data`` at byte ``start`` of an array that lies as it is stored."""
        buffer = self.buffer
        if buffer is None:
            raise NotImplementedError(f"{type(self).__name__}: no bytes of this array lie on the host")
        buffer[start : start + len(data)] = data


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the byte strides of a contiguous array in C order.

    Example:
        >>> c_strides((2, 3), 4)
        (12, 4)
    """
    strides = []
    step = itemsize
    for side in reversed(shape):
        strides.append(step)
        step *= side
    return tuple(reversed(strides))


def extent(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return (bytes before the first element, bytes from lowest to highest) of a strided array.

    Example:
        >>> extent((4,), (-8,), 8)
        (24, 32)
    """
    if 0 in shape:
        return 0, 0
    reach = [(side - 1) * stride for side, stride in zip(shape, strides, strict=True)]
    lead = -sum(step for step in reach if step < 0)
    return lead, lead + sum(step for step in reach if step > 0) + itemsize


class HostMemory:
    """Bytes of host memory that several arrays share, kept alive through ``owners``."""

    def __init__(self, address: int, nbytes: int, owners: Sequence[Any]) -> None:
        self.nbytes = nbytes
        self._owners = owners
        self._view = memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B").toreadonly()

    def window(self, start: int, stop: int) -> memoryview:
        """Return a view of the bytes ``[start, stop)``."""
        return self._view[start:stop]


def pieces(array: Any, start: int, stop: int) -> list[Any]:
    """Return sub-arrays that hold, one after the other, the elements ``[start, stop)`` in C order.

    Works on anything that is indexed like a NumPy array; nothing is copied.

    Example:
        >>> import numpy as np
        >>> [part.tolist() for part in pieces(np.arange(6).reshape(2, 3).T, 1, 5)]
        [[3], [[1, 4]], [2]]
    """
    if start >= stop:
        return []
    if array.ndim == 0:
        return [array]
    if array.ndim == 1:
        return [array[start:stop]]
    inner = 1
    for side in array.shape[1:]:
        inner *= side
    first, last = start // inner, stop // inner
    if first == last:
        return pieces(array[first], start - first * inner, stop - first * inner)
    head = [] if start == first * inner else pieces(array[first], start - first * inner, inner)
    body = array[first + bool(head) : last]
    tail = pieces(array[last], 0, stop - last * inner) if stop > last * inner else []
    return [*head, *([body] if len(body) else []), *tail]
