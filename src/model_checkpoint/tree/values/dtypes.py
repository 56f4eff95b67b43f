"""Dtypes: how each logical dtype is stored in a safetensors file.

A logical dtype has the same name in every framework (``float32``, ``bfloat16``, ...), so that what one of them saved
another can read. What safetensors cannot say is stored as what it can: complex128 as pairs of F64, datetimes as I64,
everything else as raw bytes, with one more dimension for the bytes of an element.
"""

from __future__ import annotations

from math import prod

import msgspec

_STORED = {
    "bool": ("BOOL", 1),
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "uint16": ("U16", 2),
    "int16": ("I16", 2),
    "uint32": ("U32", 4),
    "int32": ("I32", 4),
    "uint64": ("U64", 8),
    "int64": ("I64", 8),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "float8_e4m3fnuz": ("F8_E4M3FNUZ", 1),
    "float8_e5m2fnuz": ("F8_E5M2FNUZ", 1),
    "float8_e8m0fnu": ("F8_E8M0", 1),
}

NUMBERS = tuple(_STORED)  # that are stored as what they are


class DType(msgspec.Struct, frozen=True):
    """One logical dtype and its stored form."""

    name: str
    itemsize: int
    stored: str
    alignment: int
    tail: tuple[int, ...] = ()  # what the stored shape has beyond the logical one
    packed: bool = False  # two values to a byte: the stored last dimension counts values
    swapped: bool = False  # in memory big-endian

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the shape in the file where it differs from ``shape``."""
        if self.packed:
            return (*shape[:-1], shape[-1] * 2) if shape else (2,)
        return shape + self.tail if self.tail else None

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return how many bytes an array of ``shape`` takes."""
        return self.itemsize * prod(shape)


UINT8 = DType("uint8", 1, "U8", 1)  # what bytes are


def number(name: str) -> DType | None:
    """Return a dtype that every framework may have, or None.

    Example:
        >>> number("complex128").stored_shape((3,)), number("bfloat16").stored
        ((3, 2), 'BF16')
    """
    if name in _STORED:
        stored, itemsize = _STORED[name]
        return DType(name, itemsize, stored, itemsize)
    if name == "complex128":
        return DType(name, 16, "F64", 8, (2,))
    if name == "float4_e2m1fn_x2":
        return DType(name, 1, "F4", 1, packed=True)
    return None


def ticks(name: str) -> DType:
    """Return a dtype that counts time in 64-bit integers."""
    return DType(name, 8, "I64", 8)


def raw(name: str, itemsize: int) -> DType:
    """Return a dtype stored as bytes without meaning to safetensors."""
    return DType(name, itemsize, "U8", 1, () if itemsize == 1 else (itemsize,))
