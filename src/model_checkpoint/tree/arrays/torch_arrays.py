"""Torch tensors: found in a state, read in windows, made from stored bytes, written in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from model_checkpoint.errors import UnsupportedType
from model_checkpoint.state import Target
from model_checkpoint.tree.arrays.array_ref import HOST, ArrayRef, extent, pieces
from model_checkpoint.tree.arrays.numpy_arrays import NO_BYTES
from model_checkpoint.tree.nodes.located_error import LocatedError, no_codec
from model_checkpoint.tree.values.dtypes import DType, number, raw

Tensor = torch.Tensor


def _logical(dtype: torch.dtype) -> DType:
    name = str(dtype).removeprefix("torch.")
    return number(name) or raw(name, dtype.itemsize)


_QUANTIZED = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}
_DTYPES = {d: _logical(d) for d in vars(torch).values() if isinstance(d, torch.dtype) and d not in _QUANTIZED}
_BY_NAME = {logical.name: dtype for dtype, logical in _DTYPES.items()}
_IN_NUMPY = {d for d in _DTYPES if hasattr(np, _DTYPES[d].name)} | {torch.bool}
_COPYABLE = _IN_NUMPY | {torch.bfloat16, torch.complex32}  # the rest is copied as bytes
_CASTABLE = {torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int8, torch.int16}
_COMPLEX = {d for d in _DTYPES if d.is_complex}
_STRIDED = torch.strided


class TorchRef(ArrayRef):
    """A tensor in a state; ``ready`` is when a device has finished what was asked of it before the save."""

    __slots__ = ("memory", "ready")
    kind = "torch"
    memory: Any
    ready: Any

    @property
    def plain(self) -> bool:
        """Whether the bytes in memory are the bytes to store."""
        return not (self.value.is_conj() or self.value.is_neg())

    def window(self, start: int, stop: int) -> memoryview:
        """Return the stored bytes ``[start, stop)``: a view where they lie so in host memory."""
        if self.strides is None and self.space == HOST:
            return host_bytes(self.value)[start:stop]
        if self.ready is None:
            return _strided_bytes(self.value, start, stop)
        from model_checkpoint.tree.arrays import torch_cuda  # only where there is a device

        if self.strides is None:
            return torch_cuda.host_window(flat_bytes(self.value), start, stop, self.ready)
        with torch_cuda.after(self.ready, self.value.device):
            return _strided_bytes(self.value, start, stop)

    def why_not_written(self) -> str:
        """Return why no values can be written to the tensor in its place; "" if they can."""
        if self.space != HOST and self.value.is_inference():
            return "the live tensor is an inference tensor. Clone it outside inference_mode"
        return super().why_not_written() if self.strides is not None else ""

    def target(self) -> Target:
        """Return what takes verified bytes directly, for a contiguous tensor."""
        if self.space != HOST:
            return DeviceTarget(self.value)
        self.memory = self.value.untyped_storage()  # bytes go to its address, also if the tensor is given other memory
        return self

    @property
    def buffer(self) -> memoryview | None:
        """All the bytes of a contiguous tensor on the host."""
        return host_bytes(self.value) if self.space == HOST else None


def find(tensor: Tensor) -> TorchRef:
    """Return where ``tensor`` lies and what it is."""
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None or tensor.layout is not _STRIDED:
        raise _not_plain(tensor)
    found = TorchRef(tensor, dtype, tuple(tensor.shape), tensor.nbytes)
    found.ready = None
    if not tensor.is_cpu:
        if tensor.is_meta:
            raise LocatedError(
                "a meta tensor has no memory. Materialise it first (module.to_empty), before a save also fill it."
            )
        found.space = str(tensor.device)
        if tensor.is_cuda:
            from model_checkpoint.tree.arrays import torch_cuda

            found.ready = torch_cuda.mark(tensor)
    else:
        found.space = HOST
    if tensor.requires_grad:
        found.flags = "g"
    found.address = tensor.data_ptr()
    if not tensor.is_contiguous() or tensor.is_neg() or (tensor.dtype in _COMPLEX and tensor.is_conj()):
        item = dtype.itemsize
        found.strides = tuple(step * item for step in tensor.stride())
        found.span = extent(found.shape, found.strides, item)[1]
    return found


def find_parameter(parameter: torch.nn.Parameter) -> TorchRef:
    """Return where a parameter lies; one that needs no gradient is known not to be trained."""
    found = find(parameter)
    found.flags = "p" if parameter.requires_grad else "q"
    found.frozen = not parameter.requires_grad
    return found


def _not_plain(tensor: Tensor) -> LocatedError:
    what = "quantized" if tensor.is_quantized else f"{str(tensor.layout).removeprefix('torch.')} layout"
    return no_codec(torch.Tensor, f"cannot save a tensor of {tensor.dtype}, {what}")


def host_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous host tensor, without copying."""
    if tensor.nbytes == 0:
        return NO_BYTES
    bare = tensor.detach() if tensor.requires_grad else tensor
    if bare.dtype in _CASTABLE:
        return bare.numpy().data.cast("B")
    if bare.dtype in _IN_NUMPY:
        return bare.numpy().reshape(-1).view(np.uint8).data
    return flat_bytes(bare).numpy().data


def flat_bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a contiguous tensor on any device as a tensor over the same memory."""
    # a lone element counts as contiguous with any stride, and keeps it in a view(-1), which view(dtype) refuses
    return tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _strided_bytes(tensor: Tensor, start: int, stop: int) -> memoryview:
    """Return a host copy of the bytes ``[start, stop)`` in C order, with lazy conjugation and negation done."""
    item = tensor.itemsize
    first, last = start // item, -(-stop // item)
    bare = tensor.detach()
    if bare.dtype not in _COPYABLE:
        bare = bare.view(torch.uint8) if item == 1 else bare.view(torch.int16)
    out = _empty(bare.dtype, (last - first,))
    at = 0
    for part in pieces(bare, first, last):
        out[at : at + part.numel()].view(part.shape).copy_(part)
        at += part.numel()
    return host_bytes(out)[start - first * item : stop - first * item]


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of a logical name."""
    if name not in _BY_NAME:
        raise UnsupportedType(f'dtype {name}: torch cannot hold it. Load with framework="numpy".')
    return _BY_NAME[name]


def logical(name: str) -> DType:
    """Return the stored form of a torch dtype named in a manifest."""
    return _DTYPES[torch_dtype(name)]


def _empty(dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    if dtype is torch.complex32:  # creating one warns; a view of the same size does not
        return torch.empty(tuple(shape), dtype=torch.int32).view(dtype)
    return torch.empty(tuple(shape), dtype=dtype)


def empty(dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Return a fresh host tensor."""
    return _empty(torch_dtype(dtype), shape)


def adopt(data: memoryview, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor that lives in ``data``, which must be writable."""
    return torch.frombuffer(data, dtype=torch.uint8).view(torch_dtype(dtype)).view(shape)


def from_numpy(array: np.ndarray[Any, np.dtype[Any]], dtype: str) -> Tensor:
    """Return a tensor over the memory of ``array``, or over a copy where torch cannot say its strides."""
    odd = any(step < 0 or step % array.itemsize for step in array.strides)
    if array.dtype.byteorder == ">" or odd or not array.flags.writeable:
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    wanted = torch_dtype(dtype.removeprefix(">"))
    if wanted in _IN_NUMPY:
        return torch.from_numpy(array)
    same_size = {1: np.uint8, 2: np.int16, 4: np.int32}[wanted.itemsize]
    return torch.from_numpy(array.view(same_size)).view(wanted)


def can_step(dtype: str, strides: Sequence[int]) -> bool:
    """Tell whether a tensor can have these byte strides: forward, in whole elements."""
    item = torch_dtype(dtype).itemsize
    return all(step >= 0 and step % item == 0 for step in strides)


def view(base: Tensor, dtype: str, shape: Sequence[int], *, strides: Sequence[int], offset: int) -> Tensor:
    """Return a tensor inside the memory of the contiguous ``base``; strides and offset are bytes of whole elements."""
    wanted = torch_dtype(dtype)
    item = wanted.itemsize
    flat = flat_bytes(base)
    flat = flat[: flat.numel() // item * item].view(wanted)
    steps = [step // item for step in strides]
    return flat.as_strided(tuple(shape), steps, flat.storage_offset() + offset // item)


def require_device(device: Any) -> None:
    """Refuse a device torch cannot use here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        raise UnsupportedType(
            f"device: torch cannot use {device!r} here ({str(error).splitlines()[0]}). "
            "Choose another device, or leave it out."
        ) from error


def placed(tensor: Tensor, device: Any) -> Tensor:
    """Return ``tensor`` on ``device`` (unchanged for None)."""
    return tensor if device is None else tensor.to(device)


def flagged(tensor: Tensor, flags: str) -> Tensor:
    """Return ``tensor`` as the parameter, or with the gradient flag, that was saved."""
    if flags in ("p", "q"):
        return torch.nn.Parameter(tensor, requires_grad=flags == "p")
    return tensor.requires_grad_() if flags == "g" else tensor


class DeviceTarget:
    """A contiguous live tensor on a device: bytes go over window by window."""

    live = True
    buffer = None
    address = 0

    def __init__(self, tensor: Tensor) -> None:
        self._bytes = flat_bytes(tensor)

    def put(self, start: int, data: memoryview) -> None:
        """Write ``data`` at byte ``start``."""
        host = torch.from_numpy(np.frombuffer(data, np.uint8).copy())
        self._bytes[start : start + len(data)].copy_(host)


def copy_into(live: Tensor, saved: Tensor) -> None:
    """Copy values over a live tensor of the same shape, without a trace in autograd; another dtype is cast."""
    with torch.inference_mode() if live.is_inference() else torch.no_grad():
        if live.dtype in _COPYABLE or live.dtype != saved.dtype:
            live.copy_(saved)
        else:
            same = torch.uint8 if live.itemsize == 1 else torch.int16
            live.view(same).copy_(saved.view(same))


def touched(tensors: Sequence[Tensor]) -> None:
    """Tell autograd that memory changed behind its back."""
    torch.autograd.graph.increment_version(tensors)
