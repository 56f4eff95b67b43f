"""Shard data: what one rank has, as bytes with a table of which tensor lies where in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from model_checkpoint.distributed.records.checkpoint_metadata import TensorMetadata
from model_checkpoint.errors import OptionInvalid


@dataclass(frozen=True, slots=True)
class ShardData:
    """The tensors of one rank in one run of bytes.

    Example:
        >>> shard = ShardData.of({"weight": np.arange(6, dtype=np.float32).reshape(2, 3)}, rank=1)
        >>> [(one.name, one.shape, one.data_type, one.offset, one.size) for one in shard.tensor_info]
        [('weight', (2, 3), 'float32', 0, 24)]
        >>> shard.tensors()["weight"][1].tolist()
        [3.0, 4.0, 5.0]
    """

    data: bytes
    tensor_info: Sequence[TensorMetadata] = ()
    rank: int = 0

    @classmethod
    def of(cls, tensors: Mapping[str, Any], *, rank: int = 0) -> ShardData:
        """Put arrays one behind the other."""
        rows, info, offset = [], [], 0
        for name, value in tensors.items():
            array = np.ascontiguousarray(value).reshape(np.shape(value))
            rows.append(array.tobytes())
            info.append(TensorMetadata(name, array.shape, array.dtype.name, offset, len(rows[-1])))
            offset += len(rows[-1])
        return cls(b"".join(rows), tuple(info), rank)

    def tensors(self) -> dict[str, Any]:
        """The arrays by name, cut out of the bytes; raise if the table does not fit them."""
        return {info.name: self._cut(info) for info in self.tensor_info}

    def _cut(self, info: TensorMetadata) -> Any:
        dtype = _dtype(info)
        if (
            info.offset < 0
            or info.offset + info.size > len(self.data)
            or info.size != prod(info.shape) * dtype.itemsize
        ):
            raise OptionInvalid(
                f"{info.name}: {info.size} bytes from {info.offset} on are no {info.data_type} of shape "
                f"{list(info.shape)} in a shard of {len(self.data)} bytes. Correct its TensorMetadata."
            )
        return np.frombuffer(self.data, dtype, prod(info.shape), info.offset).reshape(info.shape)


def _dtype(info: TensorMetadata) -> np.dtype[Any]:
    try:
        return np.dtype(getattr(ml_dtypes, info.data_type, info.data_type))
    except TypeError as error:
        raise OptionInvalid(f"{info.name}: no such data type, {info.data_type!r}. Write it as NumPy does.") from error
