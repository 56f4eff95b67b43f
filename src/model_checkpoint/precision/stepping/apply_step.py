"""Apply step: apply judged gradients to the masters and cast the result to the training weights.

Three ways with equal results where they overlap: the fused kernel piece by piece; the base's own fused ``step()``
with the division inside its kernel; and any other base's ``step()`` on gradients divided beforehand.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import optimizer as _torch_optimizer

from model_checkpoint.precision.parameters.parameter_table import Work
from model_checkpoint.precision.stepping.kernels import (
    FusedSlice,
    Kernel,
    choose_piece,
    find_kernel,
    has_states,
    step_fused,
    step_in_pieces,
    takes_grad_scale,
)


def describe_kernel(base: torch.optim.Optimizer) -> str:
    """The flavour of arithmetic a step uses; another flavour on resume rounds differently.

    Example:
        >>> describe_kernel(torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], fused=True))
        'fused'
    """
    flags = {(bool(group.get("fused")), bool(group.get("foreach"))) for group in base.param_groups}
    if len(flags) > 1:
        return "mixed"
    fused, _ = flags.pop()
    return "fused" if fused else "loop"  # foreach and the loop give the same bits


@torch.no_grad()
def apply_step(base: torch.optim.Optimizer, work: Work, *, scale: float, coefficient: float) -> None:
    """Step the base with gradients times ``coefficient / scale``, then cast every stepped weight."""
    kernel = _find_usable_kernel(base, work)
    if kernel is not None:
        _step_pieces(base, kernel, work, scale / coefficient)
    else:
        _step_whole(base, work, scale=scale, coefficient=coefficient)
        for slot, _ in work:
            slot.cast_down()


def _find_usable_kernel(base: torch.optim.Optimizer, work: Work) -> Kernel | None:
    if _has_hooks(base):
        return None
    kernel = find_kernel(base)
    if kernel is None or any(slot.master.device.type != "cpu" for slot, _ in work):
        return None
    states, groups = base.state, base.param_groups
    ready = all(has_states(kernel, groups[slot.group], states.get(slot.master, {})) for slot, _ in work)
    return kernel if ready else None


def _has_hooks(base: Any) -> bool:
    own = base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks
    return bool(own or _torch_optimizer._global_optimizer_pre_hooks or _torch_optimizer._global_optimizer_post_hooks)


def _step_pieces(base: torch.optim.Optimizer, kernel: Kernel, work: Work, divisor: float) -> None:
    grad_scale = None if divisor == 1.0 else torch.tensor(divisor)
    threads = torch.get_num_threads()
    sizes = {slot.param.dtype: choose_piece(kernel, slot.param.dtype, threads) for slot, _ in work}
    narrow = any(gradient.dtype != torch.float32 for _, gradient in work)
    scratch = torch.empty(max(sizes.values()), dtype=torch.float32) if narrow else None
    for slot, gradient in work:
        piece = FusedSlice(
            master=slot.master.detach(),
            gradient=_laid_like(slot.master, gradient),
            target=slot.param.detach() if slot.is_reduced else None,
            scratch=scratch,
        )
        step_in_pieces(
            kernel, base.param_groups[slot.group], base.state[slot.master], piece,
            grad_scale=grad_scale, elements=sizes[slot.param.dtype],
        )  # fmt: skip
        slot.mark()


def _laid_like(master: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient in the order of its weight: fused steps go through memory, not by index."""
    if gradient.stride() == master.stride():
        return gradient
    return torch.empty_like(master, dtype=gradient.dtype).copy_(gradient)


def _step_whole(base: torch.optim.Optimizer, work: Work, *, scale: float, coefficient: float) -> None:
    inside = takes_grad_scale(base)
    kept = {id(p): (p, p.grad) for group in base.param_groups for p in group["params"]}
    try:
        for master, _ in kept.values():
            master.grad = None
        for slot, gradient in work:
            laid = _laid_like(slot.master, gradient)
            wide = laid if laid.dtype == torch.float32 else laid.float()
            factor = coefficient / scale
            slot.master.grad = wide if inside or factor == 1.0 else wide.mul_(factor)
        if inside and work:
            step_fused(base, scale / coefficient)
        else:
            type(base).step(base)
    finally:
        for master, before in kept.values():
            master.grad = before
