"""Mapped file: tensors over the bytes of a file, which come into memory when they are copied, and leave it again."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_checkpoint.convert.errors import SourceUnreadable
from model_checkpoint.storage.contract.failures import typed_errors

if TYPE_CHECKING:
    import numpy as np
    import torch


class MappedFile:
    """A file mapped for this process alone: nothing that is done to a tensor over it reaches the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with typed_errors(str(path), "could not be opened"), open(path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if self.size else b""

    def tensor(self, dtype: torch.dtype, shape: Sequence[int], start: int) -> torch.Tensor:
        """The tensor whose bytes begin at ``start``."""
        import torch

        count = prod(shape)
        self.require(start, start + count * dtype.itemsize)
        if not count:
            return torch.empty(tuple(shape), dtype=dtype)
        return torch.frombuffer(self.bytes, dtype=dtype, count=count, offset=start).view(tuple(shape))

    def array(self, dtype: np.dtype[Any], shape: Sequence[int], start: int) -> np.ndarray[Any, Any]:
        """The same for NumPy, which works without torch."""
        import numpy as np

        count = prod(shape)
        self.require(start, start + count * dtype.itemsize)
        if not count:
            return np.empty(tuple(shape), dtype)
        return np.frombuffer(self.bytes, dtype, count, start).reshape(tuple(shape))

    def require(self, start: int, stop: int) -> None:
        """Raise if the file does not have these bytes."""
        if not 0 <= start <= stop <= self.size:
            raise SourceUnreadable(
                f"{self.path}: is torn: bytes [{start}, {stop}) are wanted of {self.size}. Copy it again from where it "
                "came from.",
                str(self.path),
            )
