"""Torch types: which of torch's classes are arrays, plain values, or objects with state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from model_checkpoint.errors import ManifestInvalid
from model_checkpoint.manifest import Node
from model_checkpoint.tree.arrays import torch_arrays
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.nodes.located_error import no_codec

TENSOR = torch.Tensor


def finder(cls: type) -> Callable[[Any], ArrayRef]:
    """Return how tensors of type ``cls`` are found; a subclass may hold its values anywhere, so it is refused."""
    if cls is torch.Tensor:
        return torch_arrays.find
    if cls is torch.nn.Parameter:
        return torch_arrays.find_parameter
    what = f"cannot save the tensor subclass {cls.__module__}.{cls.__qualname__}"
    raise no_codec(cls, f"{what}: only plain tensors and parameters say where their values are")


def object_kind(cls: type) -> str | None:
    """Return which of torch's stateful objects ``cls`` is, or None."""
    own = getattr(cls, "__checkpoint_kind__", None)
    if own is not None:
        return str(own)
    if issubclass(cls, torch.nn.Module):
        return "module"
    if issubclass(cls, torch.optim.Optimizer):
        return "optimizer"
    if issubclass(cls, (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)):
        return "scheduler"
    return "scaler" if issubclass(cls, torch.amp.GradScaler) else None


def bare_optimizer(optimizer: Any) -> Any:
    """Return the optimizer that steps: what a wrapper without hooks of its own (of Accelerate, say) has inside.

    Example:
        >>> sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
        >>> bare_optimizer(sgd) is sgd
        True
    """
    known: set[int] = set()
    while not hasattr(optimizer, "_optimizer_step_pre_hooks") and id(optimizer) not in known:
        known.add(id(optimizer))
        optimizer = getattr(optimizer, "optimizer", optimizer)
    return optimizer


PACKERS: dict[type, Callable[[Any], Node]] = {
    torch.Size: lambda value: ["torch.Size", [int(side) for side in value]],
    torch.dtype: lambda value: ["torch.dtype", str(value).removeprefix("torch.")],
    torch.device: lambda value: ["torch.device", str(value)],
}


def unpack_torch(node: list[Any]) -> Any:
    """Give back a size, dtype or device."""
    match node:
        case ["torch.Size", list(sides)] if all(isinstance(side, int) for side in sides):
            return torch.Size(sides)
        case ["torch.dtype", str(name)]:
            dtype = getattr(torch, name, None)
            if isinstance(dtype, torch.dtype):
                return dtype
        case ["torch.device", str(name)] if len(name) < 64:
            try:
                return torch.device(name)
            except RuntimeError as error:
                raise ManifestInvalid(f"tree: {name!r} is no torch device ({error}).") from error
    raise ManifestInvalid(f"tree: {str(node)[:80]} is no torch value. Run `mckpt verify`.")
