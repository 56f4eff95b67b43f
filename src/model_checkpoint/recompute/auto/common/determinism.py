"""Determinism: how closely a second run is compared with the first, from not at all to every byte."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import torch
import xxhash
from torch import Tensor

_STRIDE = 64


class Determinism(Enum):
    """What is compared for each saved tensor; the number of tensors always is.

    Example:
        >>> Determinism("checksum")
        <Determinism.CHECKSUM: 'checksum'>
    """

    OFF = "off"
    METADATA = "metadata"
    CHECKSUM = "checksum"
    HASH = "hash"


def fingerprint_of(level: Determinism) -> Callable[[Tensor], Any] | None:
    """The function that turns a tensor into what is compared; None compares nothing.

    Example:
        >>> fingerprint_of(Determinism.METADATA)(torch.ones(2, 3))
        (torch.Size([2, 3]), torch.float32, device(type='cpu'))
    """
    return {
        Determinism.OFF: None,
        Determinism.METADATA: _metadata,
        Determinism.CHECKSUM: _checksum,
        Determinism.HASH: _hash,
    }[level]


def _metadata(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.shape, tensor.dtype, tensor.device)


def _checksum(tensor: Tensor) -> tuple[Any, ...]:
    """Shape, type and a sum over every 64th element, taken on the bits so that NaN equals itself."""
    flat = _bits(tensor)
    sample = flat[::_STRIDE]
    return (*_metadata(tensor), int(sample.sum(dtype=torch.int64).item()) if sample.numel() else 0)


def _hash(tensor: Tensor) -> tuple[Any, ...]:
    """Shape, type and a 64-bit hash of every byte."""
    data: Any = _bits(tensor).contiguous().cpu().numpy()
    return (*_metadata(tensor), xxhash.xxh3_64_hexdigest(data))


def _bits(tensor: Tensor) -> Tensor:
    """The tensor as a flat row of integers of its own width."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    flat = plain.reshape(-1)
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    return flat.view(integer)
