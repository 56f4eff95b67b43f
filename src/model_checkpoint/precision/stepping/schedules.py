"""Schedules: learning-rate schedulers that rest while steps are skipped, and a base that steps only through us."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from model_checkpoint.precision.errors import InvalidArgument, StepRefused, UnsupportedOptimizer

_MARK = "_stepped_by_mixed_precision"


def require_supported(base: object) -> torch.optim.Optimizer:
    """The base, if it is a dense torch optimizer that steps without a closure; else raise, naming the reason."""
    if base is None:
        raise InvalidArgument("base optimizer: got None. Pass a torch.optim optimizer.")
    if not isinstance(base, torch.optim.Optimizer):
        raise UnsupportedOptimizer(f"base optimizer: got {type(base).__name__}, expected a torch.optim.Optimizer.")
    if hasattr(base, _MARK):
        raise UnsupportedOptimizer(f"{type(base).__name__}: already wrapped. Use the wrapper you have.")
    parameters = list(inspect.signature(type(base).step).parameters.values())[1:]
    if isinstance(base, torch.optim.LBFGS) or any(
        one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters
    ):
        raise UnsupportedOptimizer(
            f"{type(base).__name__}: steps by a closure, which cannot be judged before it is applied. "
            "Choose an optimizer that steps without one."
        )
    if isinstance(base, torch.optim.SparseAdam):
        raise UnsupportedOptimizer("SparseAdam: works on sparse gradients only. Choose Adam with dense gradients.")
    return base


def refuse_closure(argument: object) -> None:
    """Raise when ``step`` was called the closure way."""
    if callable(argument):
        raise UnsupportedOptimizer(
            "step(closure): closures are not supported, the gradients must be judged first. "
            "Call backward yourself, then step()."
        )


def guard_base(base: Any) -> None:
    """From now on refuse what only the wrapper may do; schedulers made on the base before or after keep working."""

    def refuse(self: Any, *_: Any, **__: Any) -> None:
        raise StepRefused(
            f"{type(self).__name__}.step(): this optimizer holds FP32 masters of a mixed-precision optimizer. "
            "Call step() of the wrapper."
        )

    def refuse_group(self: Any, *_: Any, **__: Any) -> None:
        raise StepRefused(
            f"{type(self).__name__}.add_param_group(): these parameters would get no masters and never be stepped. "
            "Call add_param_group() of the wrapper."
        )

    def refuse_zeroing(self: Any, *_: Any, **__: Any) -> None:
        raise StepRefused(
            f"{type(self).__name__}.zero_grad(): the gradients are at the model's weights, not at the masters this "
            "optimizer holds, and would add up. Call zero_grad() of the wrapper."
        )

    refuse._wrapped_by_lr_sched = True  # type: ignore[attr-defined] # torch then neither wraps it nor warns
    base.step = types.MethodType(refuse, base)
    base.add_param_group = types.MethodType(refuse_group, base)
    base.zero_grad = types.MethodType(refuse_zeroing, base)
    setattr(base, _MARK, True)


def hold_on_skips(scheduler: Any, was_applied: Callable[[], bool]) -> None:
    """Let ``scheduler.step()`` do nothing right after a skipped optimizer step."""
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise InvalidArgument(
            "add_scheduler: ReduceLROnPlateau follows a metric, not the optimizer's steps. Step it yourself."
        )
    kind = type(scheduler)

    def step(self: Any, *args: Any, **kwargs: Any) -> None:
        if was_applied():
            kind.step(self, *args, **kwargs)

    # a subclass, because anything set on the scheduler itself would end up in its state_dict
    scheduler.__class__ = type(kind.__name__, (kind,), {"step": functools.wraps(kind.step)(step)})
