"""Sample: run a model on sample inputs without leaving a trace: gradients, buffers, generators, flags stay."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from model_checkpoint.recompute.auto.common.arguments import flatten_call, leaves_of, rebuild_call
from model_checkpoint.recompute.auto.common.errors import SampleGone
from model_checkpoint.recompute.auto.common.peak import PeakTracker, excluded_tensors
from model_checkpoint.recompute.common.context import RandomState, train_flags, train_flags_as

Loss = Callable[[Any], Tensor]
_GONE = object()


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
        buffers = [(m, n, b, b.clone()) for m in self.model.modules() for n, b in m._buffers.items() if b is not None]
        generators = RandomState.capture()
        try:
            for parameter, _ in gradients:
                parameter.grad = empty_gradient(parameter) if parameter.requires_grad else parameter.grad
            with train_flags_as(train_flags([self.model])):
                yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            _restore_buffers(buffers)
            generators.install()


def empty_gradient(tensor: Tensor) -> Tensor:
    """A gradient of zeros in the dtype that the tensor's gradients have, which need not be its own.

    Example:
        >>> weight = nn.Parameter(torch.ones(2, dtype=torch.float16))
        >>> weight.grad_dtype = torch.float32
        >>> empty_gradient(weight).dtype
        torch.float32
    """
    return torch.zeros_like(tensor, dtype=getattr(tensor, "grad_dtype", None) or tensor.dtype)


class LentSample:
    """A sample that stays the caller's: it can be used again as long as somebody else holds its tensors.

    Example:
        >>> x = torch.ones(1, 2)
        >>> lent = LentSample(Sample.of(nn.Linear(2, 2), x))
        >>> lent.borrow().args[0] is x
        True
        >>> del x
        >>> lent.borrow()
        Traceback (most recent call last):
        model_checkpoint.recompute.auto.common.errors.SampleGone: profile: its sample is gone, ...
    """

    def __init__(self, sample: Sample) -> None:
        self.model, self.input_bytes, self.shapes = sample.model, sample.input_bytes, _shapes(sample)
        self.lend(sample)

    def lend(self, sample: Sample) -> None:
        """Take another sample like the first.

        Raises:
            ValueError: its tensors have other shapes or dtypes, so that what was measured does not hold for it.
        """
        if _shapes(sample) != self.shapes:
            raise ValueError(
                f"profile: made with a sample of {self.shapes}, got {_shapes(sample)}. Leave the profile out."
            )
        leaves, self._spec = flatten_call(sample.args, sample.kwargs)
        self._leaves = [_weakly(leaf) for leaf in leaves]
        self._loss = _weakly(sample.loss)

    def borrow(self) -> Sample:
        """The sample, for the time of one call.

        Raises:
            SampleGone: nobody holds it any more.
        """
        leaves, loss = [get() for get in self._leaves], self._loss()
        if any(leaf is _GONE for leaf in [*leaves, loss]):
            raise SampleGone(
                "profile: its sample is gone, expected the tensors (and loss=) it was made with to be alive. "
                "Pass sample_input= (and loss=) again beside profile=."
            )
        args, kwargs = rebuild_call(leaves, self._spec)
        return Sample(model=self.model, args=args, kwargs=kwargs, loss=loss)


def _shapes(sample: Sample) -> list[str]:
    leaves = flatten_call(sample.args, sample.kwargs)[0]
    return [f"{tuple(leaf.shape)} {leaf.dtype}" if isinstance(leaf, Tensor) else type(leaf).__name__ for leaf in leaves]


def _weakly(value: Any) -> Callable[[], Any]:
    """A way back to a value that does not keep it alive; numbers and texts, which cannot be referred to, are kept."""
    try:
        reference = weakref.WeakMethod(value) if isinstance(value, MethodType) else weakref.ref(value)
    except TypeError:
        return lambda: value

    def get() -> Any:
        found = reference()
        return _GONE if found is None else found

    return get


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
        copy.grad = empty_gradient(copy)
    return copy


def _restore_buffers(saved: list[tuple[nn.Module, str, Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for module, name, buffer, value in saved:
            module._buffers[name] = buffer
            buffer.copy_(value)
