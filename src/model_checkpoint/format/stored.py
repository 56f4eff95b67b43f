"""Stored: the dtypes a safetensors header can say, and how many bits each takes."""

from __future__ import annotations

from functools import lru_cache
from math import prod

BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F4": 4,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}

_MOST = 1 << 62  # no medium holds more; larger products are an attack on fixed-width readers


@lru_cache(maxsize=1024)  # the many tensors of a file have few shapes
def tensor_bytes(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bytes a tensor takes, or None when dtype or shape cannot be.

    Example:
        >>> tensor_bytes("F32", (2, 3)), tensor_bytes("F32", (-1,)), tensor_bytes("F99", ())
        (24, None, None)
    """
    bits = BITS.get(dtype)
    if bits is None or any(side < 0 or side > _MOST for side in shape):
        return None
    total = bits * prod(shape)
    return total // 8 if total % 8 == 0 and total <= _MOST * 8 else None
