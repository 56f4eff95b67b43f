"""Sharded buffer: where the bytes of what this rank has of an array go, and what becomes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from model_checkpoint.errors import StructureMismatch
from model_checkpoint.manifest import Entry
from model_checkpoint.state import ShardTarget
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.arrays.buffers import ArrayBuffer, adapter
from model_checkpoint.tree.arrays.shards.marker import Shard
from model_checkpoint.tree.arrays.shards.sharded_ref import ShardedRef


class ShardedBuffer(ArrayBuffer):
    """A stored array on its way to a live one that lies on many ranks: only what this rank has of it is allocated."""

    __slots__ = ("_arrays", "_target", "live")

    def __init__(self, entry: Entry, *, name: str, live: ShardedRef) -> None:
        super().__init__(entry, name=name, framework=live.kind)
        self.live, self._arrays = live, list[Any]()
        self._target: ShardTarget | None = None

    @property
    def fresh_bytes(self) -> int:
        """Memory that this rank's part takes."""
        return sum(self.dtype.nbytes(one.shape) for one in self.live.locals)

    def wait(self) -> Any:
        """Return the fresh memory for the bytes."""
        if self._target is None:
            made = adapter("torch" if self.kind == "torch" else "numpy")
            self._arrays = [made.empty(self.dtype.name, one.shape) for one in self.live.locals]
            buffers = [made.host_bytes(array) for array in self._arrays]
            shapes = [one.shape for one in self.live.locals]
            self._target = ShardTarget(self.live.layout, shapes, buffers, live=False)
        return self._target

    def adopt(self, data: memoryview) -> bool:
        """Never: a file holds other parts than the rank wants."""
        return False

    def value(self, flags: str, device: Any) -> Any:
        """Return the finished array, laid out as the live one."""
        if self.base is None:
            self.finished(device)
        return self.base

    def finished(self, device: Any) -> None:
        """Bring the array into its final form once all bytes are there."""
        self.wait()
        self.base = self._made()

    def _made(self) -> Any:
        live = self.live.value
        if isinstance(live, Shard):
            return Shard(self._arrays[0], global_shape=live.global_shape, offsets=live.offsets)
        if hasattr(live, "local_shards"):
            raise StructureMismatch(f"{self.name}: a ShardedTensor is loaded in place only, not made anew.")
        if self.live.kind == "jax":
            from model_checkpoint.tree.arrays.shards import jax_shards

            return jax_shards.like(live, self.live.layout, self._arrays)
        from model_checkpoint.tree.arrays.shards import torch_shards

        return torch_shards.like(live, self._arrays, "")

    def land(self, live: ShardedRef) -> None:
        """Copy what came to a live array that is laid out in the same way; another dtype is cast."""
        for array, one in zip(self._arrays, live.locals, strict=True):
            _copy(array, one)

    def copy_between(self, source: ShardedRef, live: ShardedRef) -> None:
        """Copy what one live array took directly to another one of the same layout."""
        for have, want in zip(source.locals, live.locals, strict=True):
            _copy(have.value, want)


def _copy(array: Any, one: ArrayRef) -> None:
    if one.kind == "torch":
        adapter("torch").copy_into(one.value, array)
    else:
        np.copyto(one.value, array, casting="unsafe")
