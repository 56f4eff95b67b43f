"""Stores: where the activations of a manager are kept.

A store gives a slot for each activation; whoever holds the slot can read it and must release it. Slots of one layer
at different times are different slots, so a late release never hits a new activation.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol, runtime_checkable

from model_checkpoint import forks
from model_checkpoint.recompute.activations.activation import size_of
from model_checkpoint.recompute.common.closing import Closing
from model_checkpoint.recompute.errors import ActivationInvalid


@runtime_checkable
class ActivationSlot(Protocol):
    """One kept activation."""

    def read(self) -> Any:
        """The activation; :class:`LookupError` once released."""
        ...

    def release(self) -> None:
        """Let go of it; doing it again is harmless."""
        ...


@runtime_checkable
class ActivationStore(Protocol):
    """A place for activations; give a manager your own to keep them elsewhere."""

    @property
    def borrows(self) -> bool:
        """Whether it keeps the very objects it is given, so that their memory stays shared with the caller's."""
        ...

    def put(self, layer_id: str, activation: Any) -> ActivationSlot:
        """Keep an activation."""
        ...

    @property
    def spilled_bytes(self) -> int:
        """Bytes of all kept activations that lie outside working memory now."""
        ...

    def close(self) -> None:
        """Let go of everything; reading a slot afterwards is an error."""
        ...


class _MemorySlot:
    """A reference."""

    __slots__ = ("_activation",)

    def __init__(self, activation: Any) -> None:
        self._activation = activation

    def read(self) -> Any:
        activation = self._activation
        if activation is None:
            raise LookupError("the activation was released")
        return activation

    def release(self) -> None:
        self._activation = None


class MemoryStore:
    """Keeps activations as they are, by reference: reading gives the same object, graph and all.

    Example:
        >>> slot = MemoryStore().put("a", b"abc")
        >>> slot.read()
        b'abc'
    """

    borrows = True
    spilled_bytes = 0

    def put(self, layer_id: str, activation: Any) -> ActivationSlot:
        """Keep a reference."""
        return _MemorySlot(activation)

    def close(self) -> None:
        """Nothing to do: each reference goes with its slot."""


class _DeviceSlot:
    """A tensor moved elsewhere, and the way back."""

    __slots__ = ("_home", "_store", "_tensor", "moved_bytes")

    def __init__(self, store: DeviceStore, tensor: Any, home: Any, *, moved: bool) -> None:
        self._store, self._tensor, self._home = store, tensor, home
        self.moved_bytes = size_of(tensor) if moved else 0

    def read(self) -> Any:
        tensor = self._tensor
        if tensor is None:
            raise LookupError("the activation was released")
        return tensor.to(self._home)

    def release(self) -> None:
        tensor, self._tensor = self._tensor, None
        if tensor is not None:
            self._store.book(-self.moved_bytes)


class DeviceStore(Closing):
    """Keeps torch tensors on one device, usually the host, and gives them back on their own.

    A tensor that lives there already is kept by reference. Moves are differentiable, as ``Tensor.to`` is; a tensor
    that hangs on a graph should be detached, else the graph keeps its memory.

    Example:
        >>> import torch
        >>> store = DeviceStore("cpu")
        >>> store.put("a", torch.ones(2)).read()
        tensor([1., 1.])
    """

    _called = "device store"

    borrows = False

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._moved = 0
        self._lock = forks.lock()
        self._closed = False

    @property
    def spilled_bytes(self) -> int:
        """Bytes of tensors kept away from their own device now."""
        return self._moved

    def book(self, nbytes: int) -> None:
        """Add to the bytes kept away; slots report here."""
        with self._lock:
            self._moved += nbytes

    def put(self, layer_id: str, activation: Any) -> ActivationSlot:
        """Move a tensor to the device of this store."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(activation, torch.Tensor):
            raise ActivationInvalid(
                f"device store: the activation of {layer_id!r} is a {type(activation).__name__}, expected a torch "
                "tensor. Use a MemoryStore or a DiskStore."
            )
        self._check_open()
        there = activation.to(self.device)
        slot = _DeviceSlot(self, there, activation.device, moved=there.device != activation.device)
        self.book(slot.moved_bytes)
        return slot

    def close(self) -> None:
        """Take no more tensors; each one held goes with its slot."""
        self._closed = True
