"""Marker: a part of an array that says itself where in the whole it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.manifest import HeldRegion, Layout
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.arrays.shards.sharded_ref import ShardedRef
from model_checkpoint.tree.nodes.located_error import LocatedError


class Shard:
    """This rank's part of an array; other ranks have the rest, or the same.

    Put one in place of the array into the state of every rank, to save it and to load into it. The parts of all ranks
    must make up the whole.

    Example:
        >>> import numpy as np
        >>> part = Shard(np.zeros((2, 8)), global_shape=(4, 8), offsets=(2, 0))  # rows 2 and 3 of 4
        >>> part.global_shape, part.offsets
        ((4, 8), (2, 0))
    """

    __slots__ = ("array", "global_shape", "offsets")

    def __init__(self, array: Any, *, global_shape: Sequence[int], offsets: Sequence[int]) -> None:
        self.array = array
        self.global_shape = tuple(int(side) for side in global_shape)
        self.offsets = tuple(int(offset) for offset in offsets)
        shape = tuple(array.shape)
        fits = len(shape) == len(self.global_shape) == len(self.offsets) and all(
            start >= 0 and start + size <= side
            for start, size, side in zip(self.offsets, shape, self.global_shape, strict=True)
        )
        if not fits:
            raise OptionInvalid(
                f"Shard: a part of shape {list(shape)} at {list(self.offsets)} does not lie in an array of shape "
                f"{list(self.global_shape)}. Give the shape of the whole, and where in it the part begins."
            )

    def __repr__(self) -> str:
        return f"Shard({type(self.array).__name__}{list(self.array.shape)} at {self.offsets} of {self.global_shape})"


class ShardParts:
    """All that this rank has of an array: any number of parts, also none; ``like`` then tells the dtype.

    Never found to be the same array as another one over the same memory, so that ranks that have other parts of the
    two still agree on how many arrays there are.
    """

    __slots__ = ("global_shape", "like", "parts")

    def __init__(self, parts: Sequence[Shard], *, global_shape: Sequence[int], like: Any) -> None:
        self.parts = sorted(parts, key=lambda part: part.offsets)  # as the regions of the layout will be
        self.global_shape = tuple(int(side) for side in global_shape)
        self.like = like


def find(shard: Shard, inner: ArrayRef) -> ShardedRef:
    """Return what a marked part is, by what its array is."""
    _require_numbers(inner)
    regions = (HeldRegion(shard.offsets, inner.shape, ()),)
    layout = Layout(regions=regions if inner.nbytes else ())
    found = ShardedRef(shard, inner.dtype, shard.global_shape, kind=inner.kind, layout=layout, parts=[inner])
    found.flags, found.frozen, found.declared = inner.flags, inner.frozen, False
    return found


def find_parts(several: ShardParts, find_one: Callable[[Any], ArrayRef]) -> ShardedRef:
    """Return what several marked parts of one array are."""
    found = [(part.offsets, find_one(part.array)) for part in several.parts]
    held = [(offsets, inner) for offsets, inner in found if inner.nbytes]
    inner = [one for _, one in held] or [find_one(several.like)]
    _require_numbers(inner[0])
    layout = Layout(regions=tuple(HeldRegion(offsets, one.shape, ()) for offsets, one in held))
    first = inner[0]
    made = ShardedRef(several, first.dtype, several.global_shape, kind=first.kind, layout=layout, parts=inner)
    made.space, made.declared = None, False
    return made


def _require_numbers(inner: ArrayRef) -> None:
    if inner.kind not in ("numpy", "torch") or inner.dtype.packed or inner.dtype.swapped:
        what = f"{type(inner.value).__qualname__} of {inner.dtype.name}"
        raise LocatedError(f"a Shard holds a NumPy array or a torch tensor of native numbers, got {what}.")
