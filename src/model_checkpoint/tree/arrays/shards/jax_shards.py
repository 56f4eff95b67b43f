"""JAX shards: arrays of which other processes have parts, found in a state, and made again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from model_checkpoint.manifest import HeldRegion, Layout, Placement
from model_checkpoint.tree.arrays import jax_arrays, numpy_arrays
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.arrays.shards.sharded_ref import ShardedRef
from model_checkpoint.tree.nodes.located_error import LocatedError
from model_checkpoint.tree.values.numpy_dtypes import of_numpy

_Box = tuple[tuple[int, ...], tuple[int, ...]]


def find(array: Any) -> ArrayRef:
    """Return what a JAX array is; of one that lies on several processes, what this one has of it."""
    if isinstance(array, jax.core.Tracer) or array.is_fully_addressable:
        return jax_arrays.find(array)
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        raise LocatedError("PRNG keys that lie on several processes are not saved. Save jax.random.key_data(keys).")
    shape = tuple(array.shape)
    layout = _layout(array.sharding, shape)
    held = {_box(one.index, shape): one.data for one in array.addressable_shards}
    boxes = [(region.offsets, region.sizes) for region in layout.regions]
    parts = [numpy_arrays.find(np.asarray(held[box])) for box in boxes if box in held]
    empty = numpy_arrays.find(np.empty(0, array.dtype))
    dtype = of_numpy(np.dtype(array.dtype))
    found = ShardedRef(array, dtype, shape, kind="jax", layout=layout, parts=parts or [empty])
    found.space, found.address, found.span = "jax", id(array), 1  # one object twice is stored once
    return found


@lru_cache(maxsize=256)
def _layout(sharding: Any, shape: tuple[int, ...]) -> Layout:
    """Which process has which box of an array, the same on every process; and its mesh of devices, for people."""
    ranks: dict[_Box, set[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        ranks.setdefault(_box(index, shape), set()).add(int(device.process_index))
    regions = [HeldRegion(*box, tuple(sorted(own))) for box, own in sorted(ranks.items()) if 0 not in box[1]]
    if not regions or not isinstance(sharding, jax.sharding.NamedSharding):
        return Layout(regions=tuple(regions))
    mesh = sharding.mesh.shape
    return Layout(
        mesh=tuple(mesh.values()),
        placements=_placements(mesh, sharding.spec),
        regions=tuple(regions),
        names=tuple(map(str, mesh)),
    )


def _placements(axes: Iterable[Any], spec: Iterable[Any]) -> tuple[Placement, ...]:
    """What each axis of a mesh does to an array, by the spec, which says for each dimension which axes cut it."""
    cut = {axis: dim for dim, part in enumerate(spec) for axis in (part if isinstance(part, tuple) else (part,))}
    return tuple(Placement(cut.get(axis, -1)) for axis in axes)


def _box(index: Sequence[slice], shape: Sequence[int]) -> _Box:
    bounds = [part.indices(side)[:2] for part, side in zip(index, shape, strict=True)]
    return tuple(start for start, _ in bounds), tuple(stop - start for start, stop in bounds)


def like(template: Any, layout: Layout, arrays: Sequence[np.ndarray[Any, np.dtype[Any]]]) -> Any:
    """Return a JAX array laid out as ``template``; ``arrays`` are the boxes of this process, in their order."""
    shape = tuple(template.shape)
    held = {_box(one.index, shape): one for one in template.addressable_shards}
    own = [box for box in ((region.offsets, region.sizes) for region in layout.regions) if box in held]
    values = dict(zip(own, arrays, strict=True)) if own else {}
    placed = [
        jax.device_put(values.get(_box(one.index, shape), np.empty(one.data.shape, one.data.dtype)), one.device)
        for one in template.addressable_shards
    ]
    return jax.make_array_from_single_device_arrays(shape, template.sharding, placed)
