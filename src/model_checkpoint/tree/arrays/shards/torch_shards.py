"""Torch shards: DTensor (FSDP2, HSDP, tensor parallel) and ShardedTensor (FSDP1) found in a state, and made again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from model_checkpoint.manifest import HeldRegion, Layout, Placement
from model_checkpoint.tree.arrays import torch_arrays
from model_checkpoint.tree.arrays.shards.sharded_ref import ShardedRef
from model_checkpoint.tree.nodes.located_error import LocatedError


def is_dtensor(cls: type) -> bool:
    """Tell whether values of ``cls`` are DTensors, without importing them."""
    return _is(cls, "torch.distributed.tensor", "DTensor")


def is_sharded_tensor(cls: type) -> bool:
    """Tell whether values of ``cls`` are the ShardedTensors of FSDP1, without importing them."""
    return _is(cls, "torch.distributed._shard", "ShardedTensor")


def _is(cls: type, package: str, name: str) -> bool:
    return any(base.__name__ == name and base.__module__.startswith(package) for base in cls.__mro__)


def find_dtensor(tensor: Any) -> ShardedRef:
    """Return what a DTensor is, and what this rank has of it."""
    local = local_of(tensor)
    layout = _layout(tensor.device_mesh, tuple(tensor.placements))
    inner = torch_arrays.find(local)
    if not inner.nbytes:  # empty parts of tied tensors have one storage, if no address
        inner.address, inner.span = local.untyped_storage()._cdata, 1
    found = ShardedRef(tensor, inner.dtype, tuple(tensor.shape), kind="torch", layout=layout, parts=[inner])
    if isinstance(tensor, torch.nn.Parameter):
        found.flags = "p" if tensor.requires_grad else "q"
        found.frozen = not tensor.requires_grad
    elif tensor.requires_grad:
        found.flags = "g"
    return found


@lru_cache(maxsize=256)
def _layout(mesh: Any, placements: tuple[Any, ...]) -> Layout:
    """One object for all tensors that lie alike: to compare the ranks of a large mesh takes long."""
    return Layout(
        mesh=tuple(int(side) for side in mesh.shape),
        ranks=tuple(mesh.mesh.flatten().tolist()),
        placements=tuple(_placement(one) for one in placements),
        names=tuple(mesh.mesh_dim_names or ()),
    )


def local_of(tensor: Any) -> torch.Tensor:
    """The part of a DTensor that this rank has, over the same memory."""
    with torch.no_grad():
        local: torch.Tensor = tensor.to_local()
    return local


def _placement(placement: Any) -> Placement:
    if placement.is_partial():
        raise LocatedError(
            "a Partial DTensor holds sums that were not taken yet. Redistribute it to Replicate or Shard before saving."
        )
    if placement.is_replicate():
        return Placement()
    return Placement(int(placement.dim), int(getattr(placement, "split_factor", 0)))


def find_sharded_tensor(tensor: Any) -> ShardedRef:
    """Return what a ShardedTensor is, and what this rank has of it."""
    shards, metadata = tensor.local_shards(), tensor.metadata()
    regions = tuple(
        HeldRegion(tuple(one.shard_offsets), tuple(one.shard_sizes), (one.placement.rank(),))
        for one in metadata.shards_metadata
        if 0 not in one.shard_sizes
    )
    inner = [torch_arrays.find(one.tensor) for one in shards if one.tensor.numel()]
    empty = torch_arrays.find(torch.empty(0, dtype=metadata.tensor_properties.dtype))
    dtype = (inner or [empty])[0].dtype
    return ShardedRef(
        tensor, dtype, tuple(metadata.size), kind="torch", layout=Layout(regions=regions), parts=inner or [empty]
    )


def like(template: Any, arrays: Sequence[torch.Tensor], flags: str) -> Any:
    """Return a DTensor laid out as ``template`` over the memory of one array."""
    from torch.distributed.tensor import DTensor

    made = DTensor.from_local(
        arrays[0],
        template.device_mesh,
        template.placements,
        run_check=False,
        shape=template.shape,
        stride=template.stride(),
    )
    return torch_arrays.flagged(made, flags) if flags else made
