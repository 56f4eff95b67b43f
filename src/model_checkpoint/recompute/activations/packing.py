"""Packing: an activation as plain byte buffers, and back.

Knows arrays of NumPy and torch, bytes-like objects, Python scalars, and tuples, lists and dicts of them. Anything else
is refused by name: nothing is pickled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from model_checkpoint.errors import UnsupportedType
from model_checkpoint.recompute.errors import ActivationInvalid

Restore = Callable[[Iterator[bytearray]], Any]


def pack_activation(activation: Any) -> tuple[list[memoryview], Restore]:
    """Give the buffers of an activation and the function that makes it again from such buffers.

    Contiguous CPU memory is not copied: the buffers are views, good as long as the activation is.

    Raises:
        UnsupportedType: a part has no byte form (a ``TypeError``).
        ActivationInvalid: a torch tensor hangs on an autograd graph (a ``ValueError``).

    Example:
        >>> buffers, restore = pack_activation((b"ab", 7))
        >>> restore(iter([bytearray(b) for b in buffers]))
        (b'ab', 7)
    """
    buffers: list[memoryview] = []
    return buffers, _pack(activation, buffers)


def _pack(value: Any, buffers: list[memoryview]) -> Restore:
    if value is None or isinstance(value, bool | int | float | complex | str):
        return lambda source: value
    if type(value) in (tuple, list):
        kind, parts = type(value), [_pack(item, buffers) for item in value]
        return lambda source: kind(restore(source) for restore in parts)
    if type(value) is dict:
        fields = {key: _pack(item, buffers) for key, item in value.items()}
        return lambda source: {key: restore(source) for key, restore in fields.items()}
    return _pack_buffer(value, buffers)


def _pack_buffer(value: Any, buffers: list[memoryview]) -> Restore:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return _pack_tensor(torch, value, buffers)
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        return _pack_array(numpy, value, buffers)
    if isinstance(value, bytes | bytearray):
        kind = type(value)
        buffers.append(memoryview(value))
        return lambda source: kind(next(source))
    raise UnsupportedType(
        f"spill: a {type(value).__name__} cannot be written as bytes, expected NumPy or torch arrays, bytes, scalars, "
        "or tuples, lists and dicts of them. Keep it in a MemoryStore."
    )


def _pack_array(numpy: Any, value: Any, buffers: list[memoryview]) -> Restore:
    if value.dtype.hasobject or (type(value) is not numpy.ndarray and not isinstance(value, numpy.generic)):
        raise UnsupportedType(
            f"spill: a {type(value).__name__} of dtype {value.dtype} cannot be written as bytes. "
            "Keep it in a MemoryStore."
        )
    dtype, shape, scalar = value.dtype, value.shape, isinstance(value, numpy.generic)
    flat = numpy.ascontiguousarray(value).reshape(-1)
    buffers.append(memoryview(flat.view(numpy.uint8)) if flat.size and dtype.itemsize else memoryview(b""))

    def restore(source: Iterator[bytearray]) -> Any:
        array = numpy.ndarray(shape, dtype, buffer=next(source))
        return array[()] if scalar else array

    return restore


def _pack_tensor(torch: Any, value: Any, buffers: list[memoryview]) -> Restore:
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided or value.is_quantized:
        raise UnsupportedType(
            f"spill: a {type(value).__name__} ({value.layout}, {value.dtype}) cannot be written as bytes, expected a "
            "plain strided tensor. Keep it in a MemoryStore."
        )
    if value.grad_fn is not None:
        raise ActivationInvalid(
            "spill: the tensor hangs on an autograd graph, which cannot be written to a file. Pass tensor.detach()."
        )
    dtype, shape, device, wants_grad = value.dtype, value.shape, value.device, value.requires_grad
    is_parameter = type(value) is torch.nn.Parameter
    whole = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
    flat = whole.as_strided((whole.numel(),), (1,))  # a lone element counts as contiguous with any stride
    buffers.append(memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b""))

    def restore(source: Iterator[bytearray]) -> Any:
        data = next(source)
        raw = torch.frombuffer(data, dtype=torch.uint8).view(dtype) if data else torch.empty(0, dtype=dtype)
        tensor = raw.reshape(shape).to(device)
        return torch.nn.Parameter(tensor, wants_grad) if is_parameter else tensor.requires_grad_(wants_grad)

    return restore
