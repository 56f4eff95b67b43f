"""Kernels: torch's fused optimizer steps, run piece by piece so that each piece is cast while still in cache.

The fused operators are private to torch. They are used only for exactly the optimizers below, only when the caller
asked for ``fused=True``, and only after a probe in this process has shown the same bits as the public ``step()``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

Group = Mapping[str, Any]
Tensors = Sequence[Tensor]
Launch = Callable[..., None]  # (weight, gradient, states, *, steps, group, grad_scale)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One fused operator: which optimizer it belongs to, the state it needs, how it is called."""

    optimizer: type[torch.optim.Optimizer]
    launch: Launch
    state_names: Callable[[Group], tuple[str, ...]]  # tensors as large as the weight
    counts_steps: bool


def _launch_adam(
    weight: Tensor, gradient: Tensor, states: Tensors, *, steps: Tensors, group: Group, grad_scale: Any
) -> None:
    operator: Any = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
    operator(
        [weight], [gradient], [states[0]], [states[1]], list(states[2:]), list(steps),
        lr=group["lr"], beta1=float(group["betas"][0]), beta2=float(group["betas"][1]),
        weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=group["amsgrad"],
        maximize=group["maximize"], grad_scale=grad_scale, found_inf=None,
    )  # fmt: skip


def _launch_sgd(
    weight: Tensor, gradient: Tensor, states: Tensors, *, steps: Tensors, group: Group, grad_scale: Any
) -> None:
    operator: Any = torch._fused_sgd_
    operator(
        [weight], [gradient], list(states),
        weight_decay=group["weight_decay"], momentum=group["momentum"], lr=group["lr"],
        dampening=group["dampening"], nesterov=group["nesterov"], maximize=group["maximize"],
        is_first_step=False, grad_scale=grad_scale, found_inf=None,
    )  # fmt: skip


def _launch_adagrad(
    weight: Tensor, gradient: Tensor, states: Tensors, *, steps: Tensors, group: Group, grad_scale: Any
) -> None:
    operator: Any = torch._fused_adagrad_
    operator(
        [weight], [gradient], list(states), list(steps),
        lr=group["lr"], lr_decay=group["lr_decay"], weight_decay=group["weight_decay"], eps=group["eps"],
        maximize=group["maximize"], grad_scale=grad_scale, found_inf=None,
    )  # fmt: skip


def _adam_states(group: Group) -> tuple[str, ...]:
    return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")


def _sgd_states(group: Group) -> tuple[str, ...]:
    return ("momentum_buffer",) if group["momentum"] else ()


def _adagrad_states(group: Group) -> tuple[str, ...]:
    return ("sum",)


_KERNELS = (
    Kernel(torch.optim.AdamW, _launch_adam, _adam_states, True),
    Kernel(torch.optim.Adam, _launch_adam, _adam_states, True),
    Kernel(torch.optim.SGD, _launch_sgd, _sgd_states, False),
    Kernel(torch.optim.Adagrad, _launch_adagrad, _adagrad_states, True),
)


def takes_grad_scale(base: torch.optim.Optimizer) -> bool:
    """Whether the optimizer's own fused step divides by ``grad_scale`` itself."""
    kernel = next((one for one in _KERNELS if type(base) is one.optimizer), None)
    fused = all(_is_plain(group) for group in base.param_groups)
    return kernel is not None and fused and divides_inside(kernel)


@lru_cache(maxsize=8)
def divides_inside(kernel: Kernel) -> bool:
    """Whether the public fused step honours ``grad_scale`` on this build of torch."""
    inside, before = (torch.nn.Parameter(torch.linspace(-1, 1, 33)) for _ in range(2))
    try:
        for parameter, gradient, scale in ((inside, 4.0, 4.0), (before, 1.0, 1.0)):
            base = _fused(kernel, parameter, lr=0.5)
            parameter.grad = torch.full((33,), gradient)
            step_fused(base, scale)
    except (AttributeError, TypeError, RuntimeError):
        return False
    return torch.equal(inside, before) and not torch.equal(inside, torch.linspace(-1, 1, 33))


def find_kernel(base: torch.optim.Optimizer) -> Kernel | None:
    """The kernel that may step ``base`` piece by piece, or None when only its own ``step()`` may."""
    for kernel in _KERNELS:
        if type(base) is kernel.optimizer and all(_is_plain(group) for group in base.param_groups):
            return kernel if passes_probe(kernel) else None
    return None


def _is_plain(group: Group) -> bool:
    return bool(group.get("fused")) and not group.get("differentiable")


@lru_cache(maxsize=8)
def passes_probe(kernel: Kernel) -> bool:
    """Whether the private operator, cut into pieces, gives the bits of the public step on this build of torch."""
    try:
        return all(_same_bits(kernel, scale) for scale in (None, 3.0))
    except (AttributeError, TypeError, RuntimeError, KeyError, NotImplementedError):
        return False


def _fused(kernel: Kernel, parameter: torch.nn.Parameter, *, lr: float) -> torch.optim.Optimizer:
    """An optimizer to try the kernel with; SGD with momentum, else it would have no state."""
    settings: dict[str, Any] = {"momentum": 0.9} if kernel.optimizer is torch.optim.SGD else {}
    return kernel.optimizer([parameter], lr=lr, fused=True, **settings)  # type: ignore[call-arg]


def _same_bits(kernel: Kernel, scale: float | None) -> bool:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(1061, generator=generator)
    gradients = [torch.randn(1061, generator=generator) for _ in range(3)]
    whole, cut = (torch.nn.Parameter(start.clone()) for _ in range(2))
    public, private = (_fused(kernel, one, lr=0.01) for one in (whole, cut))
    for turn, gradient in enumerate(gradients):
        whole.grad = gradient.clone()
        _set_grad_scale(public, None if scale is None else torch.tensor(scale))
        public.step()
        if turn == 0:  # states come into being in the public step
            cut.grad = gradient.clone()
            _set_grad_scale(private, None if scale is None else torch.tensor(scale))
            private.step()
            continue
        step_in_pieces(
            kernel, private.param_groups[0], private.state[cut],
            FusedSlice(master=cut.data, gradient=gradient.clone(), target=None),
            grad_scale=None if scale is None else torch.tensor(scale), elements=256,
        )  # fmt: skip
    return torch.equal(whole, cut) and _equal_states(public.state[whole], private.state[cut])


def _equal_states(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return all(torch.equal(value, second[name]) for name, value in first.items() if isinstance(value, Tensor))


def _set_grad_scale(base: Any, scale: Tensor | None) -> None:
    base.grad_scale = scale
    base.found_inf = None if scale is None else torch.zeros(())


def step_fused(base: torch.optim.Optimizer, divisor: float) -> None:
    """The public fused step with its gradients divided by ``divisor`` inside the kernel."""
    try:
        device = next(p.device for g in base.param_groups for p in g["params"] if p.grad is not None)
        _set_grad_scale(base, None if divisor == 1.0 else torch.tensor(divisor, device=device))
        type(base).step(base)
    finally:
        del base.grad_scale, base.found_inf  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedSlice:
    """One parameter's tensors for one step; ``target`` receives the cast, None when the weight is its own master.

    ``scratch`` is room to widen half gradients in, a piece at a time.
    """

    master: Tensor
    gradient: Tensor
    target: Tensor | None
    scratch: Tensor | None = None


def step_in_pieces(
    kernel: Kernel,
    group: Group,
    state: Mapping[str, Any],
    work: FusedSlice,
    *,
    grad_scale: Tensor | None,
    elements: int,
) -> None:
    """Step one parameter ``elements`` at a time, casting each piece right after it was computed."""
    steps = [state["step"]] if kernel.counts_steps else []
    for step in steps:
        step.add_(1)
    moments = [state[name] for name in kernel.state_names(group)]
    tensors = [work.master, work.gradient, *moments, *([] if work.target is None else [work.target])]
    for master, gradient, *rest in _cut(tensors, elements):
        wide = gradient if gradient.dtype == torch.float32 else _widen(gradient, work.scratch)
        kernel.launch(master, wide, rest[: len(moments)], steps=steps, group=group, grad_scale=grad_scale)
        if work.target is not None:
            rest[-1].copy_(master)


def _widen(gradient: Tensor, scratch: Tensor | None) -> Tensor:
    if scratch is None or gradient.numel() > scratch.numel() or not gradient.is_contiguous():
        return gradient.float()
    return scratch[: gradient.numel()].view(gradient.shape).copy_(gradient)


def _cut(tensors: Sequence[Tensor], elements: int) -> Any:
    if tensors[0].numel() <= elements or not all(one.is_contiguous() for one in tensors):
        return (tensors,)
    return zip(*(torch.split(one.view(-1), elements) for one in tensors), strict=True)


def has_states(kernel: Kernel, group: Group, state: Mapping[str, Any]) -> bool:
    """Whether an earlier step has made every state the kernel needs."""
    needed = (*kernel.state_names(group), *(("step",) if kernel.counts_steps else ()))
    return all(isinstance(state.get(name), Tensor) for name in needed)


@lru_cache(maxsize=16)
def choose_piece(kernel: Kernel, target: torch.dtype, threads: int) -> int:
    """The number of elements per piece that is fastest here; results do not depend on it."""
    size = 1 << 21
    master = torch.nn.Parameter(torch.zeros(size))
    base = _fused(kernel, master, lr=0.0)
    master.grad = torch.zeros(size)
    base.step()
    work = FusedSlice(master=master.data, gradient=master.grad, target=torch.empty(size, dtype=target))
    candidates = [
        1 << power for power in (18, 19, 20, 21)
    ]  # below, the calls themselves cost more than the cache saves
    spent = dict.fromkeys(candidates, float("inf"))
    for _ in range(5):
        for elements in candidates:
            started = time.perf_counter()
            step_in_pieces(kernel, base.param_groups[0], base.state[master], work, grad_scale=None, elements=elements)
            spent[elements] = min(spent[elements], time.perf_counter() - started)
    return min(candidates, key=lambda elements: spent[elements])
