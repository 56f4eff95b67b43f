"""Sharded ref: an array of a state of which other ranks have parts; its shape is that of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model_checkpoint.errors import NeedsCoordinator
from model_checkpoint.manifest import Layout
from model_checkpoint.state import LocalArray, Sharding, ShardTarget
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.values.dtypes import DType


class ShardedRef(ArrayRef):
    """One array that lies on many ranks; ``locals`` are the parts that this one has."""

    __slots__ = ("declared", "kind", "layout", "locals")
    on_ranks = True

    def __init__(
        self, value: Any, dtype: DType, shape: tuple[int, ...], *, kind: str, layout: Layout, parts: Sequence[ArrayRef]
    ) -> None:
        super().__init__(value, dtype, shape, dtype.nbytes(shape))
        self.kind, self.layout, self.locals = kind, layout, parts
        self.declared = True
        first = parts[0]
        if first.space is not None:  # two of one memory are one array; never mixed up with what is whole
            self.space = f"shards in {first.space}"
            self.address, self.span = first.address, max(1, first.span)

    @property
    def plain(self) -> bool:
        """Never: the bytes in this process are not those of the whole."""
        return False

    @property
    def sharding(self) -> Sharding:
        """What a save needs to know of it."""
        return Sharding(self.layout, [LocalArray(one.shape, one) for one in self.locals], self.declared)

    @property
    def parts(self) -> Sequence[ArrayRef]:
        """The arrays that this process has of it."""
        return self.locals

    def why_not_written(self) -> str:
        """Return why no values can be written to the parts in their place; "" if they can."""
        return next(filter(None, (one.why_not_written() for one in self.locals)), "")

    def target(self) -> ShardTarget | None:
        """Return what takes verified bytes directly; None if one of the parts does not lie as it is stored."""
        buffers = [_buffer(one) for one in self.locals]
        known = [buffer for buffer in buffers if buffer is not None]
        if len(known) < len(buffers):
            return None
        return ShardTarget(self.layout, [one.shape for one in self.locals], known, live=True)

    def window(self, start: int, stop: int) -> memoryview:
        """Refused: nobody has all of it."""
        raise NeedsCoordinator(
            f"an array of shape {list(self.shape)} is spread over many ranks. Pass coordinator= on every rank."
        )


def _buffer(one: ArrayRef) -> memoryview | None:
    return None if one.strides is not None or one.dtype.swapped else one.buffer
