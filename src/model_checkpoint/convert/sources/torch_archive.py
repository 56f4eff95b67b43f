"""Torch archive: one tensor that ``torch.save`` wrote into a stretch of a file, over the bytes of the file.

The archive says where the numbers lie, and a small pickle in it how they are arranged; of that pickle nothing but a
plain tensor is understood, and whatever else it holds is left to torch's own loader that runs nothing.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from typing import Any, NamedTuple

import torch

from model_checkpoint.convert.errors import SourceUnreadable
from model_checkpoint.convert.sources.mapped_file import MappedFile
from model_checkpoint.convert.sources.torch_file import load_safely

_LOCAL_HEADER = 30
_MOST_PICKLE = 1 << 20
_NOT_PLAIN = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    struct.error,
)


# what a pickle calls a storage, and of what numbers it is; an untyped one is told apart
_STORAGES = {
    "UntypedStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "ShortStorage": torch.int16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
}


class _Numbers(NamedTuple):
    """A storage that a pickle refers to."""

    dtype: torch.dtype | None
    key: str


class _Arranged(NamedTuple):
    """How a tensor lies in its storage."""

    dtype: torch.dtype
    key: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _FileSlice(io.RawIOBase):
    """The bytes ``[start, stop)`` of a mapped file as a file of their own."""

    def __init__(self, file: MappedFile, start: int, stop: int) -> None:
        super().__init__()
        self._file, self._start, self._size, self._at = file, start, stop - start, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        stop = self._size if size < 0 else min(self._size, self._at + size)
        data = bytes(self._file.bytes[self._start + self._at : self._start + max(self._at, stop)])
        self._at += len(data)
        return data


class _PlainTensor(pickle.Unpickler):
    """Understands one tensor over one storage, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda numbers, offset, size, stride, *_: _arranged(numbers, numbers.dtype, offset, size, stride)
        if (module, name) == ("torch._utils", "_rebuild_tensor_v3"):
            return lambda numbers, offset, size, stride, _, __, dtype, *___: _arranged(
                numbers, dtype, offset, size, stride
            )
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        found = getattr(torch, name, None) if module == "torch" else None
        if isinstance(found, torch.dtype):
            return found
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a plain tensor")

    def persistent_load(self, pid: Any) -> _Numbers:
        kind, dtype, key, _, _ = pid
        if kind != "storage" or not isinstance(key, str):
            raise pickle.UnpicklingError("no storage")
        return _Numbers(dtype if isinstance(dtype, torch.dtype) else None, key)


def _arranged(numbers: _Numbers, dtype: Any, offset: Any, size: Any, stride: Any) -> _Arranged:
    plain = isinstance(dtype, torch.dtype) and type(offset) is int and isinstance(numbers, _Numbers)
    if not plain or not all(type(n) is int and n >= 0 for n in (offset, *size, *stride)) or len(size) != len(stride):
        raise pickle.UnpicklingError("no arrangement of a tensor")
    return _Arranged(dtype, numbers.key, offset, tuple(size), tuple(stride))


def archived_tensor(file: MappedFile, start: int, stop: int) -> torch.Tensor:
    """The tensor in the archive at ``[start, stop)`` of a file."""
    file.require(start, stop)
    try:
        return _mapped(file, start, stop)
    except (*_NOT_PLAIN, zipfile.BadZipFile):
        found = archived_value(file, start, stop)
    if not isinstance(found, torch.Tensor):
        raise SourceUnreadable(
            f"{file.path}: bytes [{start}, {stop}) hold a {type(found).__qualname__}, expected a tensor.",
            str(file.path),
        )
    return found


def _mapped(file: MappedFile, start: int, stop: int) -> torch.Tensor:
    with zipfile.ZipFile(_FileSlice(file, start, stop)) as archive:
        names = {name.partition("/")[2]: name for name in archive.namelist()}
        if archive.getinfo(names["data.pkl"]).file_size > _MOST_PICKLE or _is_swapped(archive, names):
            raise pickle.UnpicklingError("no plain tensor")
        found = _PlainTensor(io.BytesIO(archive.read(names["data.pkl"]))).load()
        if not isinstance(found, _Arranged):
            raise pickle.UnpicklingError("no plain tensor")
        record = archive.getinfo(names[f"data/{found.key}"])
    if record.compress_type != zipfile.ZIP_STORED:
        raise pickle.UnpicklingError("compressed")
    at = start + record.header_offset
    name, extra = struct.unpack("<HH", file.bytes[at + 26 : at + _LOCAL_HEADER])
    data = at + _LOCAL_HEADER + name + extra
    file.require(data, min(stop, data + record.file_size))
    count = record.file_size // found.dtype.itemsize
    reach = found.offset + sum((side - 1) * step for side, step in zip(found.size, found.stride, strict=True)) + 1
    if data + record.file_size > stop or (0 not in found.size and reach > count):
        raise pickle.UnpicklingError("the tensor is longer than its storage")
    if 0 in found.size:
        return torch.empty(found.size, dtype=found.dtype)
    return file.tensor(found.dtype, (count,), data).as_strided(found.size, found.stride, found.offset)


def _is_swapped(archive: zipfile.ZipFile, names: dict[str, str]) -> bool:
    return "byteorder" in names and archive.read(names["byteorder"]) != b"little"


def archived_value(file: MappedFile, start: int, stop: int) -> Any:
    """What is in the archive at ``[start, stop)`` of a file, if it can be had without running anything."""
    file.require(start, stop)
    return load_safely(io.BytesIO(file.bytes[start:stop]), f"{file.path}, bytes [{start}, {stop})")
