"""Torch guards: which tensors change only in an optimizer's step, how to hold that step back, and who broke the rule.

A guard promises that its parameters, and the tensors in its state, are written by its ``step()`` alone. What no version
counter shows breaks the promise unseen: writes through ``.data``, NumPy or raw pointers, fused kernels and CUDA graphs
outside of ``step()``. Whoever does that must wait for the copy first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from model_checkpoint.errors import LazyRefused, UnsupportedType
from model_checkpoint.state import Flat
from model_checkpoint.tree.arrays.array_ref import HOST
from model_checkpoint.tree.arrays.shards.torch_shards import is_dtensor, local_of
from model_checkpoint.tree.arrays.torch_arrays import TorchRef
from model_checkpoint.tree.arrays.torch_types import bare_optimizer

_Place = tuple[str | None, int, int]
_RENORMED = (torch.nn.Embedding, torch.nn.EmbeddingBag)

_spent: list[Any] = []  # handles of hooks that have done their work but could not be removed in mid-call


class Watched(NamedTuple):
    """A tensor that is copied later, and the version it had at the call."""

    name: str
    tensor: torch.Tensor
    version: int

    @property
    def moved(self) -> bool:
        """Whether it was written to since."""
        return self.tensor._version != self.version


class Guard:
    """The optimizers that hold back, and the leaves of one state that they guard, by index."""

    def __init__(self, optimizers: Sequence[Any], leaves: Mapping[int, Watched]) -> None:
        self.optimizers, self.leaves = optimizers, leaves

    def hold(self, wait: Callable[[], None]) -> None:
        """Have the next step of every optimizer call ``wait`` before it writes anything."""
        _remove_spent(list(_spent))
        for optimizer in self.optimizers:
            _StepHook(optimizer, wait)


class _StepHook:
    """Waits once, before a step, then unhooks itself."""

    def __init__(self, optimizer: Any, wait: Callable[[], None]) -> None:
        self._wait: Callable[[], None] | None = wait
        self._handle = optimizer.register_step_pre_hook(self)

    def __call__(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._wait is None:
            return
        self._wait()
        self._wait = None  # only now: an interrupted wait must be repeated by the next step
        _spent.append(self._handle)
        hooks = optimizer._optimizer_step_pre_hooks
        if next(reversed(hooks), None) == self._handle.id:  # torch is looping over them; in the last one all may go
            _remove_spent([handle for handle in _spent if handle.hooks_dict_ref() is hooks])


def _remove_spent(handles: Sequence[Any]) -> None:
    for handle in handles:
        handle.remove()
        _spent.remove(handle)


def find_guard(flat: Flat, more: Sequence[Any]) -> Guard | None:
    """Return what guards the tensors of ``flat``: the optimizers met in it and ``more``; None without any."""
    optimizers = _optimizers(flat.owners, more)
    if not optimizers:
        return None
    places = {_place(tensor): tensor for one in optimizers for tensor in _written_by(one)}
    _refuse_changing(flat.owners, optimizers, places)
    leaves = {}
    for index, leaf in enumerate(flat.leaves):
        source = leaf.source if leaf.sharding is None else leaf.sharding.arrays[0].source
        if isinstance(source, TorchRef):
            tensor = places.get((source.space, source.address, source.nbytes))
            if tensor is not None and source.nbytes and not tensor.is_inference():
                leaves[index] = Watched(leaf.name, tensor, tensor._version)
    return Guard(optimizers, leaves)


def _optimizers(owners: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    """Those that step, out of whatever wraps them; one in the state that cannot be held back guards nothing."""
    given = [bare_optimizer(one) if hasattr(one, "param_groups") else one for one in more]
    for one, bare in zip(more, given, strict=True):
        if not _can_be_held(bare):
            raise UnsupportedType(f"guard: expected torch optimizers, got {type(one).__qualname__}")
    found = [bare_optimizer(one) for one in owners if isinstance(one, torch.optim.Optimizer)]
    return list({id(one): one for one in (*filter(_can_be_held, found), *given)}.values())


def _can_be_held(optimizer: Any) -> bool:
    return hasattr(optimizer, "_optimizer_step_pre_hooks") and hasattr(optimizer, "param_groups")


def _place(tensor: torch.Tensor) -> _Place:
    return (HOST if tensor.is_cpu else str(tensor.device), tensor.data_ptr(), tensor.nbytes)


def _parameters(optimizer: Any) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _written_by(optimizer: Any) -> Iterator[torch.Tensor]:
    """The parameters of an optimizer and the tensors in their state, not those in its groups (learning rates)."""
    for parameter in _parameters(optimizer):
        yield _here(parameter)
        yield from map(_here, _tensors(optimizer.state.get(parameter, {})))


def _here(tensor: torch.Tensor) -> torch.Tensor:
    """What this process has of a tensor, and what counts the writes to it."""
    return local_of(tensor) if is_dtensor(type(tensor)) else tensor


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _refuse_changing(owners: Iterable[Any], optimizers: Iterable[Any], places: Mapping[_Place, torch.Tensor]) -> None:
    """Refuse parameters that a forward or a backward writes to."""
    cure = "Save without lazy=True."
    modules = [one for one in owners if isinstance(one, torch.nn.Module)]
    for name, part in ((n or "the module", p) for module in modules for n, p in module.named_modules()):
        if isinstance(part, _RENORMED) and part.max_norm is not None and _place(_here(part.weight)) in places:
            kind = type(part).__name__
            raise LazyRefused(f"{name}: the forward of {kind}(max_norm={part.max_norm}) changes its weight. {cure}")
    for parameter in (p for one in optimizers for p in _parameters(one)):
        if getattr(parameter, "_in_backward_optimizers", None) or getattr(
            parameter, "_post_accumulate_grad_hooks", None
        ):
            shape = list(parameter.shape)
            raise LazyRefused(f"parameter of shape {shape}: a hook may step its optimizer in backward. {cure}")
