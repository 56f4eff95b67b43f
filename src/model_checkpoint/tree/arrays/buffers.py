"""Buffers: where the bytes of one stored array go, and what becomes of them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache, lru_cache
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from model_checkpoint import forks
from model_checkpoint.errors import ClassUnavailable, LimitExceeded, ManifestInvalid, UnsupportedType
from model_checkpoint.manifest import Entry
from model_checkpoint.tree.arrays import numpy_arrays
from model_checkpoint.tree.arrays.frameworks import loaded
from model_checkpoint.tree.values.dtypes import UINT8, DType, number
from model_checkpoint.tree.values.numpy_dtypes import from_name, of_numpy

ADAPTERS = {"torch": "torch_arrays", "jax": "jax_arrays", "tensorflow": "tensorflow_arrays"}
FRAMEWORKS = ("numpy", *ADAPTERS)
TEXTS = ("bytes", "bytearray")
RANK = 64 if int(np.__version__.split(".")[0]) > 1 else 32  # dimensions that NumPy can count
_ALLOCATING = forks.lock()


@cache
def adapter(kind: str) -> ModuleType:
    """Return the module that makes arrays of ``kind``; a framework that nobody imported stays out."""
    if kind == "numpy":
        return numpy_arrays
    if kind not in ADAPTERS:
        raise ManifestInvalid(f"arrays of kind {kind!r}: unknown. Upgrade: pip install -U model-checkpoint.")
    if not loaded(kind):
        raise ClassUnavailable(
            f"saved from {kind}, which is not imported, and a load imports nothing by itself. Import {kind} first, or "
            f'load with framework="{kind}" or framework="numpy".'
        )
    return importlib.import_module(f"model_checkpoint.tree.arrays.{ADAPTERS[kind]}")


def import_framework(name: str) -> None:
    """Import the framework the caller asked for by its name."""
    if name not in FRAMEWORKS:
        raise UnsupportedType(f"framework: {name!r} is unknown, expected one of {', '.join(FRAMEWORKS)}.")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ClassUnavailable(
            f'{name} arrays: {name} is not installed ({error}). Install it, or load with framework="numpy".'
        ) from error


class HostTarget:
    """Fresh, contiguous host memory that waits for bytes."""

    __slots__ = ("buffer",)
    live = False
    address = 0

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer

    def put(self, start: int, data: memoryview) -> None:
        """Write ``data`` at byte ``start``."""
        self.buffer[start : start + len(data)] = data


class ArrayBuffer:
    """One stored array on its way back: checked at once, allocated on demand."""

    __slots__ = ("base", "dtype", "entry", "kind", "name", "target")

    def __init__(self, entry: Entry, *, name: str, framework: str | None) -> None:
        self.entry, self.name = entry, name
        self.kind = entry.kind if framework is None or entry.kind in TEXTS else framework
        self.dtype = stored_form(entry.dtype, kind=self.kind, saved=entry.kind)
        if _sized(self.dtype.itemsize, entry.shape) != entry.nbytes:
            raise LimitExceeded(f"shape {list(entry.shape)} of {entry.dtype} does not take {entry.nbytes} bytes")
        self.base: Any = None
        self.target: HostTarget | None = None

    @property
    def fresh_bytes(self) -> int:
        """Memory it takes where no live array takes the bytes."""
        return self.entry.nbytes

    def wait(self) -> HostTarget:
        """Return the fresh memory for the bytes."""
        if self.target is None:
            with _ALLOCATING:  # two workers may ask at once; both must get the same memory
                if self.target is None:
                    self.base, buffer = self._fresh()
                    self.target = HostTarget(buffer)
        return self.target

    def _fresh(self) -> tuple[Any, memoryview]:
        if self.kind in TEXTS:
            data = bytearray(self.entry.nbytes)
            return data, memoryview(data)
        if self.kind == "torch":
            made = adapter("torch")
            tensor = made.empty(self.dtype.name, self.entry.shape)
            return tensor, made.host_bytes(tensor)
        array = numpy_arrays.empty(self.dtype.name, self.entry.shape)
        return array, numpy_arrays.host_bytes(array)

    def adopt(self, data: memoryview) -> bool:
        """Use ``data`` itself as the array's memory, if the framework can."""
        torch_needs = self.kind == "torch" and data.readonly
        if self.kind in TEXTS or self.dtype.swapped or torch_needs or not self.entry.nbytes:
            return False
        address = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
        if address % min(self.dtype.itemsize, 16) or len(data) != self.entry.nbytes:
            return False
        made = adapter("torch") if self.kind == "torch" else numpy_arrays
        self.base = made.adopt(data, self.dtype.name, self.entry.shape)
        self.target = HostTarget(data)
        return True

    def value(self, flags: str, device: Any) -> Any:
        """Return the finished array."""
        self.wait()
        if self.kind in TEXTS:
            return bytes(self.base) if self.kind == "bytes" else self.base
        if self.kind == "numpy":
            return self.base
        made = adapter(self.kind)
        if self.kind == "torch":
            return made.flagged(self.base, flags)
        return made.make(self.base, self.entry.attributes if self.entry.kind == self.kind else None, device)

    def finished(self, device: Any) -> None:
        """Bring the array into its final form once all bytes are there."""
        self.wait()
        if self.kind == "numpy":
            self.base = numpy_arrays.finished(self.base, self.dtype)
        elif self.kind == "torch":
            self.base = adapter("torch").placed(self.base, device)


@lru_cache(maxsize=4096)  # the many arrays of a state have few shapes
def _sized(itemsize: int, shape: tuple[int, ...]) -> int | None:
    """Return how many bytes an array takes; None if there is no such shape."""
    return None if len(shape) > RANK or min(shape, default=0) < 0 else prod(shape) * itemsize


def stored_form(name: str, *, kind: str, saved: str) -> DType:
    """Return the dtype an array of ``saved`` kind takes in framework ``kind``; never a cast."""
    if kind in ("jax", "tensorflow"):  # what they can hold depends on how they are set
        adapter(kind).refuse(name.removeprefix(">"))
    return _form(name, kind, saved)


@lru_cache(maxsize=4096)
def _form(name: str, kind: str, saved: str) -> DType:
    if kind in TEXTS:
        return _bytes(name)
    plain = name if kind == "numpy" or name.startswith((">U", "<U")) else name.removeprefix(">")
    crossing = (kind == "torch") != (saved == "torch")
    known = number(plain.removeprefix(">"))
    if crossing and (known is None or known.packed):
        raise UnsupportedType(
            f"dtype {name} of {saved}: {kind} cannot say it exactly. Leave framework= out, or load without it (parts=)."
        )
    if kind == "torch":
        form: DType = adapter("torch").logical(plain)
        return form
    adapter(kind)
    return of_numpy(from_name(plain))


def _bytes(name: str) -> DType:
    if name != UINT8.name:
        raise ManifestInvalid(f"dtype {name}: bytes are stored as uint8. The manifest is damaged.")
    return UINT8


def show(base: Any, kind: str, device: Any, *, geometry: Sequence[Any]) -> Any:
    """Return a view of ``kind`` into a finished array: (dtype, shape, strides, offset), in bytes."""
    dtype, shape, strides, offset = geometry
    if kind == "torch" and not isinstance(base, np.ndarray) and adapter("torch").can_step(dtype, strides):
        return adapter("torch").view(base, dtype, shape, strides=strides, offset=offset)
    memory = _host(base)
    array = numpy_arrays.view(memory, dtype, shape, strides, offset)
    if kind == "numpy":
        return array
    if kind == "torch":
        made = adapter("torch")
        return made.placed(made.from_numpy(array, dtype), device)
    return adapter(kind).make(array.copy(), None, device)


def _host(base: Any) -> memoryview:
    if isinstance(base, np.ndarray):
        return numpy_arrays.host_bytes(base)
    memory: memoryview = adapter("torch").host_bytes(base.cpu())
    return memory
