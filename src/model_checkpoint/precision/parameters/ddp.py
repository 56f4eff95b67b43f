"""Ddp: FP32 gradients and changes of precision under DistributedDataParallel.

Its reducer is bound to the parameters as they were when it was made: it takes gradients only in the dtype they had,
and it hears of none at all once a parameter has changed its dtype, so that ranks would drift apart. Therefore FP32
gradients are narrowed for the moment in which the reducer copies them, and a change of dtype makes the reducer anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch.nn import Module, Parameter
from torch.nn.parallel import DistributedDataParallel

from model_checkpoint.precision.errors import StepRefused


@dataclass(slots=True)
class _Bond:
    """What one reducer was made for, and our hooks around it."""

    dtypes: tuple[torch.dtype, ...] = ()
    handles: list[Any] = field(default_factory=list)


class DdpReplicas:
    """The DistributedDataParallel modules that train one model; usually none or one."""

    def __init__(self) -> None:
        self._bonds: WeakKeyDictionary[DistributedDataParallel, _Bond] = WeakKeyDictionary()

    def follow(self, model: Module) -> None:
        """Make the reducers anew whose parameters changed their dtype; refuse where torch cannot."""
        inside = [module for module in model.modules() if isinstance(module, DistributedDataParallel)]
        for wrapper in {*self._bonds, *inside}:
            if self._is_outdated(wrapper):
                self._release(wrapper)
                remake_reducer(wrapper)
                self._bind(wrapper)

    def notice(self, wrapper: DistributedDataParallel) -> None:
        """Take in a wrapper that was made around the model by someone else, at its first forward."""
        if wrapper in self._bonds:
            return
        if _may_remake(wrapper) or not all(map(_is_heard, _trained(wrapper))):
            remake_reducer(wrapper)  # it may have been made before the weights were cast
        self._bind(wrapper)

    def _is_outdated(self, wrapper: DistributedDataParallel) -> bool:
        return self._bonds.get(wrapper, _Bond()).dtypes != _dtypes_of(wrapper)

    def _release(self, wrapper: DistributedDataParallel) -> None:
        for handle in self._bonds.pop(wrapper, _Bond()).handles:
            handle.remove()

    def _bind(self, wrapper: DistributedDataParallel) -> None:
        _require_copies(wrapper)
        halves = [parameter for parameter in _trained(wrapper) if parameter.dtype != torch.float32]
        handles = [handle for parameter in halves for handle in _Crossing(parameter, wrapper).place(parameter)]
        self._bonds[wrapper] = _Bond(_dtypes_of(wrapper), handles)


class _Crossing:
    """One half parameter's gradient on its way through the reducer: half while it is copied, else FP32."""

    def __init__(self, parameter: Parameter, wrapper: DistributedDataParallel) -> None:
        self._parameter, self._wrapper = ref(parameter), ref(wrapper)
        self._wide: torch.Tensor | None = None

    def place(self, parameter: Any) -> Sequence[Any]:
        """Hook in before and after the reducer, which listens behind the accumulation of this parameter."""
        node = torch.autograd.graph.get_gradient_edge(parameter).node
        return parameter.register_post_accumulate_grad_hook(self._enter), node.register_hook(self._leave)

    def _enter(self, parameter: torch.Tensor) -> None:
        wrapper, gradient = self._wrapper(), parameter.grad
        if wrapper is None or gradient is None or not wrapper.require_backward_grad_sync:
            return
        if gradient.dtype != parameter.dtype:
            self._wide = gradient
            _replace_gradient(parameter, gradient.to(parameter.dtype))

    def _leave(self, *_: Any) -> None:
        parameter, wide = self._parameter(), self._wide
        if parameter is not None and wide is not None:
            self._wide = None
            _replace_gradient(parameter, wide)


def _replace_gradient(parameter: torch.Tensor, gradient: torch.Tensor) -> None:
    parameter.grad = None
    parameter.grad_dtype = gradient.dtype
    parameter.grad = gradient


def _trained(wrapper: DistributedDataParallel) -> list[Parameter]:
    return [parameter for parameter in wrapper.parameters() if parameter.requires_grad]


def _dtypes_of(wrapper: DistributedDataParallel) -> tuple[torch.dtype, ...]:
    return tuple(parameter.dtype for parameter in _trained(wrapper))


def _require_copies(wrapper: DistributedDataParallel) -> None:
    """Refuse wrappers whose reducer does not copy each gradient right after it was accumulated."""
    widened = any(getattr(one, "grad_dtype", one.dtype) not in (None, one.dtype) for one in _trained(wrapper))
    for setting in ("gradient_as_bucket_view", "static_graph"):
        if widened and getattr(wrapper, setting, False):
            raise StepRefused(
                f"DistributedDataParallel({setting}=True): its reducer takes gradients of half parameters only in "
                f"half. Choose accumulate_in_fp32=False, or {setting}=False."
            )


def _may_remake(wrapper: DistributedDataParallel) -> bool:
    return wrapper.process_group is torch.distributed.group.WORLD and not wrapper.static_graph


def _is_heard(parameter: Parameter) -> bool:
    """Whether someone keeps the node that accumulates this gradient, as the reducer that listens to it does."""
    _metadata_of(parameter)[__name__] = True
    return __name__ in _metadata_of(parameter)


def _metadata_of(parameter: Parameter) -> Any:
    return torch.autograd.graph.get_gradient_edge(parameter).node.metadata


def remake_reducer(wrapper: DistributedDataParallel) -> None:
    """Give the wrapper a reducer for its parameters as they are now, the way unpickling does."""
    if not _may_remake(wrapper):
        raise StepRefused(
            "DistributedDataParallel with static_graph=True or a process group of its own: its reducer cannot follow "
            "weights that change their dtype, and ranks would drift apart. Make the optimizer around the plain model, "
            "then wrap that; and wrap it again after each fallback."
        )
    hooks = list(getattr(wrapper, "_comm_hooks", ()))
    state = wrapper.__getstate__()  # type: ignore[no-untyped-call]
    wrapper.__setstate__({**state, "_comm_hooks": []})  # type: ignore[no-untyped-call]
    for hook, its_state in hooks:
        wrapper.register_comm_hook(its_state, hook)


def find_active() -> DistributedDataParallel | None:
    """The wrapper whose forward is running; None outside, and where torch does not tell."""
    finder = getattr(DistributedDataParallel, "_get_active_ddp_module", None)
    return None if finder is None or torch.compiler.is_compiling() else finder()
