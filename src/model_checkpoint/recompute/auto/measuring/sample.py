"""Sample: run a model on sample inputs without leaving a trace: gradients, buffers, generators, flags stay."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from model_checkpoint.recompute.auto.common.arguments import flatten_call, leaves_of, rebuild_call
from model_checkpoint.recompute.auto.common.peak import PeakTracker, excluded_tensors

Loss = Callable[[Any], Tensor]


def default_loss(output: Any) -> Tensor:
    """The loss of a calibration step when none is given: ``output.loss`` if there is one, else the mean of squares.

    Example:
        >>> default_loss((torch.ones(4), None))
        tensor(1.)
    """
    loss = getattr(output, "loss", None)
    if isinstance(loss, Tensor):
        return loss
    parts = [leaf.pow(2).mean() for leaf in leaves_of(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    if not parts:
        raise TypeError(f"loss: the model returned {type(output).__name__} with no float tensor. Pass loss=.")
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


class Watch(Protocol):
    """Someone who follows a tracked step."""

    def begin(self, tracker: PeakTracker) -> None:
        """The forward pass is about to start."""
        ...

    def turn(self) -> None:
        """The loss is there; backward is about to start."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A model with sample inputs and a loss: everything one training step needs.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> sample = Sample.of(model, torch.ones(1, 2))
        >>> with sample.untouched():
        ...     sample.step()
        >>> model.weight.grad is None
        True
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Loss = default_loss

    @classmethod
    def of(cls, model: nn.Module, sample_input: Any, loss: Loss | None = None) -> Sample:
        """Read ``sample_input``: a tensor, a tuple of arguments or a dict of keyword arguments."""
        if isinstance(sample_input, dict):
            return cls(model=model, args=(), kwargs=dict(sample_input), loss=loss or default_loss)
        args = sample_input if isinstance(sample_input, tuple) else (sample_input,)
        return cls(model=model, args=args, kwargs={}, loss=loss or default_loss)

    @property
    def input_bytes(self) -> int:
        """The size of the sample inputs."""
        return input_bytes(self.args, self.kwargs)

    def forward(self) -> Any:
        """Call the model on copies of the inputs."""
        args, kwargs = self._copies()
        return self.model(*args, **kwargs)

    def step(self) -> None:
        """One forward and backward on copies of the inputs."""
        args, kwargs = self._copies()
        self._run(args, kwargs)

    def tracked_step(self, watch: Watch | None = None) -> PeakTracker:
        """One step under a tracker that counts what a budget counts; ``watch`` sees it begin and turn."""
        args, kwargs = self._copies()
        with PeakTracker(excluded_tensors(self.model, [args, kwargs])) as tracker:
            if watch is not None:
                watch.begin(tracker)
            self._run(args, kwargs, watch.turn if watch is not None else None)
        return tracker

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], between: Callable[[], None] | None = None) -> None:
        loss = self.loss(self.model(*args, **kwargs))
        if between is not None:
            between()
        loss.backward()  # type: ignore[no-untyped-call]

    def _copies(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        leaves, spec = flatten_call(self.args, self.kwargs)
        return rebuild_call([_copy(leaf) for leaf in leaves], spec)

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Put gradients, buffers, generators and train flags back after the block; in it every ``.grad`` exists."""
        gradients = [(p, p.grad) for p in self.model.parameters()]
        flags = [(m, m.training) for m in self.model.modules()]
        buffers = [(m, n, b, b.clone()) for m in self.model.modules() for n, b in m._buffers.items() if b is not None]
        states = random.getstate(), np.random.get_state(), torch.get_rng_state(), _cuda_states()
        try:
            for parameter, _ in gradients:
                parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else parameter.grad
            yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            for module, flag in flags:
                module.training = flag
            _restore_buffers(buffers)
            _restore_generators(states)


def input_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The size of all tensors in a call."""
    return sum(leaf.nbytes for leaf in flatten_call(args, kwargs)[0] if isinstance(leaf, Tensor))


def _copy(leaf: Any) -> Any:
    """A copy a forward may write into; its ``.grad`` exists, as gradients are not counted."""
    if not isinstance(leaf, Tensor):
        return leaf
    copy = leaf.detach().clone()
    if leaf.requires_grad:
        copy.requires_grad_()
        copy.grad = torch.zeros_like(copy)
    return copy


def _cuda_states() -> list[Tensor]:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def _restore_buffers(saved: list[tuple[nn.Module, str, Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for module, name, buffer, value in saved:
            module._buffers[name] = buffer
            buffer.copy_(value)


def _restore_generators(states: tuple[Any, Any, Tensor, list[Tensor]]) -> None:
    python, legacy, rng, cuda = states
    random.setstate(python)
    np.random.set_state(legacy)
    torch.set_rng_state(rng)
    if cuda:
        torch.cuda.set_rng_state_all(cuda)
