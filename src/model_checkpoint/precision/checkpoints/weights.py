"""StoredWeight: one weight of a checkpoint with dtype, shape and little-endian bytes; or how to derive it."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch

from model_checkpoint.precision.errors import InvalidArgument


@dataclass(frozen=True, slots=True, eq=False)
class StoredWeight:
    """A weight by value, or, when ``is_derived``, the exact cast of ``source`` (its master) to ``dtype``.

    Example:
        >>> weight = StoredWeight.of(torch.tensor([1.0, 2.0], dtype=torch.float16))
        >>> weight.dtype, weight.shape, weight.data.hex()
        (torch.float16, (2,), '003c0040')
    """

    source: torch.Tensor
    dtype: torch.dtype
    is_derived: bool = False

    @classmethod
    def of(cls, tensor: torch.Tensor) -> StoredWeight:
        """A weight stored by value."""
        return cls(tensor, tensor.dtype)

    @classmethod
    def of_training(cls, tensor: torch.Tensor, master: torch.Tensor) -> StoredWeight:
        """A training weight: derived when it is bit for bit the cast of its master, else by value."""
        if same_bits(tensor, master.to(tensor.dtype)):
            return cls(master, tensor.dtype, True)
        return cls.of(tensor)

    @classmethod
    def from_bytes(cls, data: bytes, *, dtype: torch.dtype, shape: tuple[int, ...]) -> StoredWeight:
        """The weight that little-endian ``data`` holds; its length must fit."""
        expected = torch.Size(shape).numel() * dtype.itemsize
        if len(data) != expected:
            raise InvalidArgument(f"weight: {len(data)} bytes, expected {expected} for {dtype} {shape}. It is damaged.")
        flat = (
            torch.frombuffer(bytearray(_native(data, dtype.itemsize)), dtype=dtype)
            if data
            else torch.empty(0, dtype=dtype)
        )
        return cls.of(flat.reshape(shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.source.shape)

    @property
    def tensor(self) -> torch.Tensor:
        """The weight itself; computed when derived."""
        return self.source.to(self.dtype)

    @property
    def data(self) -> bytes:
        """Its elements in row order, little-endian."""
        flat = _in_a_row(self.tensor.cpu())
        return _native(flat.view(torch.uint8).numpy().tobytes(), self.dtype.itemsize)


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors agree in dtype, shape and every bit; NaNs and signed zeros count by their bits.

    Example:
        >>> same_bits(torch.tensor(0.0), torch.tensor(-0.0))
        False
    """
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.data_ptr() == second.data_ptr() and first.stride() == second.stride():
        return True
    return torch.equal(_integers(first), _integers(second))


def _integers(tensor: torch.Tensor) -> torch.Tensor:
    """The bits as integers, in row order."""
    flat = _in_a_row(tensor)
    return flat.view({2: torch.int16, 4: torch.int32}.get(flat.dtype.itemsize, torch.uint8))


def _in_a_row(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in row order, one behind the other; a lone one counts as contiguous with any stride and keeps it."""
    return tensor.detach().contiguous().as_strided((tensor.numel(),), (1,))


def _native(data: bytes, width: int) -> bytes:
    """The bytes with their order turned on big-endian machines; the same bytes elsewhere."""
    if sys.byteorder == "little" or width == 1:
        return data
    return b"".join(data[start : start + width][::-1] for start in range(0, len(data), width))
