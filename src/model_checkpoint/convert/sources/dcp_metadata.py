"""DCP metadata: the pickle that describes a checkpoint of DCP, of which only known classes are built.

A pickle names the functions that rebuild what it holds. Here each name is looked up in a short list: the records of
DCP, and plain shapes and dtypes. Whatever else a file names is refused before anything is called.
"""

from __future__ import annotations

import io
import os
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as records
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex, TensorStorageMetadata

from model_checkpoint.convert.errors import SourceUnreadable
from model_checkpoint.options import MIB
from model_checkpoint.storage.contract.failures import typed_errors

METADATA = ".metadata"
_MOST = 4096 * MIB
_BROKEN = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
    RuntimeError,  # RecursionError is one
    MemoryError,  # what a number in a torn pickle may ask for
    OverflowError,
)


class StoragePlace:
    """Where one chunk of a checkpoint of DCP lies."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Any = None


class _OldProperties(records.TensorProperties):
    """The same record as older versions of torch pickle it, from another module."""


class _OldFormat(int):
    """The memory format in such a record; only its number counts."""


def _layout(name: object) -> torch.layout:
    if name != "torch.strided":
        raise pickle.UnpicklingError(f"tensors of layout {name!r} cannot be read")
    return torch.strided


def _path(*parts: str) -> str:
    return str(PurePosixPath(*parts))


_RECORDS = (
    "Metadata",
    "TensorStorageMetadata",
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "TensorProperties",
    "MetadataIndex",
    "StorageMeta",
    "_MEM_FORMAT_ENCODING",
)
_SHARDED = "torch.distributed._shard.sharded_tensor.metadata"
_FILESYSTEM = "torch.distributed.checkpoint.filesystem"
_KNOWN: dict[tuple[str, str], Any] = {
    **{("torch.distributed.checkpoint.metadata", name): getattr(records, name) for name in _RECORDS},
    (_FILESYSTEM, "_StorageInfo"): StoragePlace,
    (_SHARDED, "TensorProperties"): _OldProperties,
    (_SHARDED, "MEM_FORMAT_ENCODING"): _OldFormat,
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): _layout,
    ("collections", "OrderedDict"): OrderedDict,
    ("pathlib", "PosixPath"): _path,
    ("pathlib", "PurePosixPath"): _path,
    ("pathlib._local", "PosixPath"): _path,
}


class _Allowlist(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if known is not None:
            return known
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no metadata of DCP needs")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside of itself")


def read_metadata(folder: str | os.PathLike[str]) -> Metadata:
    """The metadata of a checkpoint of DCP; raise if the file wants anything but its records, or they are not sound."""
    path = Path(folder) / METADATA
    with typed_errors(str(path), "could not be read"):
        if path.stat().st_size > _MOST:
            raise SourceUnreadable(f"{path}: is longer than any metadata of DCP.", str(path))
        data = path.read_bytes()
    try:
        made = _Allowlist(io.BytesIO(data)).load()
    except _BROKEN as error:
        raise SourceUnreadable(
            f"{path}: is no metadata of torch.distributed.checkpoint that can be read without running code ({error}). "
            "It is torn, of another tool, or forged; nothing of it was used.",
            str(path),
        ) from error
    _require_sound(made, str(path))
    found: Metadata = made
    return found


def _require_sound(made: Any, where: str) -> None:
    """A forged file may give any record any value; what is used later is looked at here."""
    fields = vars(made) if isinstance(made, Metadata) else {}
    told, places, paths = (fields.get(key) for key in ("state_dict_metadata", "storage_data", "planner_data"))
    sound = (
        isinstance(told, Mapping)
        and isinstance(places, Mapping)
        and (paths is None or isinstance(paths, (Mapping, list, str)))
        and all(isinstance(key, str) and _is_record(record) for key, record in told.items())
        and all(isinstance(key, MetadataIndex) and _is_place(place) for key, place in places.items())
        and all(_is_path(path) for path in (paths.values() if isinstance(paths, Mapping) else ()))
    )
    if not sound:
        raise SourceUnreadable(f"{where}: its records have values that DCP never gives them. It is forged.", where)


def _is_record(record: Any) -> bool:
    if isinstance(record, BytesStorageMetadata):
        return True
    fields = vars(record) if isinstance(record, TensorStorageMetadata) else {}
    chunks = fields.get("chunks")
    return (
        isinstance(getattr(fields.get("properties"), "dtype", None), torch.dtype)
        and _is_size(fields.get("size"))
        and isinstance(chunks, list)
        and all(
            isinstance(one, records.ChunkStorageMetadata)
            and _is_size(getattr(one, "offsets", None))
            and _is_size(getattr(one, "sizes", None))
            for one in chunks
        )
    )


def _is_size(size: Any) -> bool:
    return isinstance(size, tuple) and all(type(side) is int and side >= 0 for side in size)


def _is_place(place: Any) -> bool:
    fields = vars(place) if isinstance(place, StoragePlace) else {}
    return isinstance(fields.get("relative_path"), str) and all(
        type(fields.get(key)) is int and fields[key] >= 0 for key in ("offset", "length")
    )


def _is_path(path: Any) -> bool:
    return isinstance(path, (tuple, list)) and bool(path) and all(type(part) in (int, str) for part in path)
