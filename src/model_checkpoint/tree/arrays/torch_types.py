"""Torch types: which of torch's classes are arrays, plain values, or objects with state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from model_checkpoint.errors import ManifestInvalid
from model_checkpoint.manifest import Node
from model_checkpoint.tree.arrays import torch_arrays
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.arrays.shards import torch_shards
from model_checkpoint.tree.nodes.located_error import no_codec
from model_checkpoint.tree.values.codecs import register_codec

TENSOR = torch.Tensor
_DTYPES = {str(one).removeprefix("torch."): one for one in vars(torch).values() if isinstance(one, torch.dtype)}


def finder(cls: type) -> Callable[[Any], ArrayRef]:
    """Return how tensors of type ``cls`` are found; a subclass may hold its values anywhere, so it is refused."""
    if cls is torch.Tensor:
        return torch_arrays.find
    if cls is torch.nn.Parameter:
        return torch_arrays.find_parameter
    if torch_shards.is_dtensor(cls):
        return torch_shards.find_dtensor
    if torch_shards.is_sharded_tensor(cls):
        return torch_shards.find_sharded_tensor
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


def _generator_state(generator: torch.Generator) -> dict[str, Any]:
    return {"device": str(generator.device), "state": generator.get_state().numpy()}


def _set_generator(generator: torch.Generator, state: Any) -> None:
    generator.set_state(torch.from_numpy(np.array(np.asarray(state["state"]), np.uint8)))


def _made_generator(state: Any) -> torch.Generator:
    made = torch.Generator(state["device"])
    _set_generator(made, state)
    return made


register_codec(torch.Generator, _generator_state, _made_generator, fill=_set_generator, name="torch.Generator")


def unpack_torch(node: list[Any]) -> Any:
    """Give back a size, dtype or device."""
    match node:
        case ["torch.Size", list(sides)] if all(type(side) is int and abs(side) < 1 << 63 for side in sides):
            return torch.Size(sides)
        case ["torch.dtype", str(name)]:
            if name in _DTYPES:
                return _DTYPES[name]
        case ["torch.device", str(name)] if len(name) < 64:
            try:
                return torch.device(name)
            except RuntimeError as error:
                raise ManifestInvalid(f"tree: {name!r} is no torch device ({error}).") from error
    raise ManifestInvalid(f"tree: {str(node)[:80]} is no torch value. Run `mckpt verify`.")
