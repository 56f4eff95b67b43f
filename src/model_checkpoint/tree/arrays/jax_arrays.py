"""JAX arrays: found in a state, read in windows, made from stored bytes. Typed PRNG keys keep their implementation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

from model_checkpoint.errors import UnsupportedType
from model_checkpoint.manifest import Node
from model_checkpoint.tree.arrays.array_ref import ArrayRef, pieces
from model_checkpoint.tree.arrays.numpy_arrays import host_bytes, window_of
from model_checkpoint.tree.nodes.located_error import LocatedError
from model_checkpoint.tree.values.numpy_dtypes import from_name, of_numpy


class JaxRef(ArrayRef):
    """A JAX array in a state."""

    __slots__ = ()
    kind = "jax"

    def window(self, start: int, stop: int) -> memoryview:
        """Return the stored bytes ``[start, stop)``: a view on one CPU device, else a copy of just these."""
        if not self.nbytes:
            return memoryview(b"")
        data = jax.random.key_data(self.value) if self.attributes else self.value
        if _on_one_host_device(data):
            return window_of(np.asarray(data), self.dtype.itemsize, start, stop)
        item = self.dtype.itemsize
        first, last = start // item, -(-stop // item)
        parts = [np.asarray(part).reshape(-1) for part in pieces(data, first, last)]
        return host_bytes(np.concatenate(parts))[start - first * item : stop - first * item]


def is_array(cls: type) -> bool:
    """Tell whether values of ``cls`` are JAX arrays."""
    return issubclass(cls, (jax.Array, jax.core.Tracer))


def find(array: Any) -> JaxRef:
    """Return what ``array`` is; JAX arrays never change, so only one object in two places is sharing."""
    if isinstance(array, jax.core.Tracer):
        raise LocatedError("a traced JAX value has no bytes. Save outside of jit, grad and vmap.")
    attributes: Node = None
    data = array
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        attributes = ["key", str(jax.random.key_impl(array))]
        data = jax.random.key_data(array)
    found = JaxRef(array, of_numpy(np.dtype(data.dtype)), tuple(data.shape), data.size * data.dtype.itemsize)
    found.attributes = attributes
    found.space, found.address, found.span = "jax", id(array), 1  # one object twice is stored once
    return found


def _on_one_host_device(array: Any) -> bool:
    devices = array.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


def refuse(name: str) -> None:
    """Raise if JAX, set as it is, would hold another dtype than ``name``."""
    if _held(name, bool(jax.config.jax_enable_x64)) != name:
        raise UnsupportedType(
            f'dtype {name}: JAX as configured cannot hold it. Set jax_enable_x64, or load with framework="numpy".'
        )


@cache
def _held(name: str, wide: bool) -> str | None:
    """Return the dtype JAX gives a value of dtype ``name``, None if it takes none."""
    try:
        return str(jax.device_put(np.zeros((), from_name(name))).dtype)
    except (TypeError, ValueError):
        return None


def require_device(device: Any) -> None:
    """Refuse a device JAX cannot use here."""
    try:
        jax.device_put(np.zeros(0, np.float32), jax.devices(device)[0] if isinstance(device, str) else device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedType(
            f"device: JAX cannot use {device!r} here ({str(error).splitlines()[0]}). "
            "Choose another device, or leave it out."
        ) from error


def make(array: np.ndarray[Any, np.dtype[Any]], attributes: Node, device: Any) -> Any:
    """Return a JAX array with the values of ``array``."""
    place = jax.devices(device)[0] if isinstance(device, str) else device
    made = jax.device_put(array, place)
    match attributes:
        case ["key", str(implementation)]:
            return jax.random.wrap_key_data(made, impl=implementation)
    return made


def setter(live: Any) -> Callable[[Any], None] | None:
    """Return None: a JAX array never changes, it has a successor."""
    return None


def successor(live: Any, build: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes the array that takes the place of ``live``, on its devices."""
    return lambda: jax.device_put(build(), live.sharding)
