"""NumPy arrays: found in a state, read in windows, made from stored bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from model_checkpoint.tree.arrays.array_ref import HOST, ArrayRef, extent, pieces
from model_checkpoint.tree.values.dtypes import DType
from model_checkpoint.tree.values.numpy_dtypes import from_name, of_numpy

Array = np.ndarray[Any, np.dtype[Any]]
NO_BYTES = memoryview(b"")


class NumpyRef(ArrayRef):
    """A NumPy array in a state."""

    __slots__ = ()
    kind = "numpy"

    def window(self, start: int, stop: int) -> memoryview:
        """Return the stored bytes ``[start, stop)``: a view where they lie so in memory."""
        if self.strides is None and not self.dtype.swapped:
            return host_bytes(self.value)[start:stop]
        return strided_bytes(self.value, self.dtype.itemsize, start, stop)

    def why_not_written(self) -> str:
        """Return why no values can be written to the array in its place; "" if they can."""
        if not self.value.flags.writeable:
            return "the live array is read-only. Pass a writable copy"
        return super().why_not_written()

    @property
    def buffer(self) -> memoryview | None:
        """All the bytes of an array that lies as it is stored."""
        return host_bytes(self.value)


def find(array: Array) -> NumpyRef:
    """Return where ``array`` lies and what it is."""
    dtype = of_numpy(array.dtype)
    found = NumpyRef(array, dtype, array.shape, array.nbytes)
    found.space = HOST
    found.address = array.__array_interface__["data"][0]
    if not array.flags.c_contiguous:
        found.strides = array.strides
        found.lead, found.span = extent(array.shape, array.strides, dtype.itemsize)
        found.address -= found.lead
    return found


def host_bytes(array: Array) -> memoryview:
    """Return the bytes of a C-contiguous array, without copying; writable if the array is."""
    if array.nbytes == 0:
        return NO_BYTES
    return array.reshape(-1).view(np.uint8).data


def window_of(array: Array, itemsize: int, start: int, stop: int) -> memoryview:
    """Return the bytes ``[start, stop)`` of an array as it is stored: a view where it lies so in memory."""
    if array.flags.c_contiguous:
        return host_bytes(array)[start:stop]
    return strided_bytes(array, itemsize, start, stop)


def strided_bytes(array: Array, itemsize: int, start: int, stop: int) -> memoryview:
    """Return a copy of the bytes ``[start, stop)`` of an array as it is stored: C order, little-endian."""
    if start == stop:
        return NO_BYTES
    first, last = start // itemsize, -(-stop // itemsize)
    if array.dtype.isnative or array.dtype.kind in "USV":  # as bytes, since copying values may lose padding bits
        array = array.view(np.dtype((np.void, itemsize)))
    little = np.empty(last - first, array.dtype.newbyteorder("<"))
    at = 0
    for part in pieces(array, first, last):
        little[at : at + part.size].reshape(part.shape)[...] = part
        at += part.size
    return host_bytes(little)[start - first * itemsize : stop - first * itemsize]


def empty(dtype: str, shape: tuple[int, ...]) -> Array:
    """Return fresh memory for the stored bytes of an array (little-endian, whatever ``dtype`` says)."""
    kind = from_name(dtype if dtype.startswith(">U") else dtype.removeprefix(">"))
    return np.ndarray(shape, kind)  # np.empty would widen texts of no length


def adopt(data: memoryview, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return an array that lives in ``data``."""
    return np.frombuffer(data, np.uint8).view(from_name(dtype)).reshape(shape)


def view(memory: memoryview, dtype: str, shape: Sequence[int], strides: Sequence[int], offset: int) -> Array:
    """Return an array inside ``memory``; the caller has checked that it stays inside."""
    return np.ndarray(tuple(shape), from_name(dtype), memory, offset, tuple(strides))


def finished(array: Array, dtype: DType) -> Array:
    """Return the array as it was saved, once its bytes are there: big-endian ones are turned round in place."""
    if not dtype.swapped:
        return array
    array.byteswap(inplace=True)
    return array.view(array.dtype.newbyteorder(">"))
