"""Safetensors file: the tensors of one file, its header read as if an enemy had written it.

They come as torch tensors, or as NumPy arrays where torch is not installed.
"""

from __future__ import annotations

import os
from functools import cache
from math import prod
from typing import Any

import msgspec

from model_checkpoint.convert.errors import SourceUnreadable
from model_checkpoint.convert.sources.imported import Imported
from model_checkpoint.convert.sources.mapped_file import MappedFile
from model_checkpoint.options import ReaderLimits
from model_checkpoint.tree.values.dtypes import NUMBERS, number

_MOST_HEADER = ReaderLimits().header_bytes
_ABOUT = "__metadata__"


class _Placed(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


@cache
def _has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


@cache
def _torch_dtypes() -> dict[str, Any]:
    import torch

    names = {str(one).removeprefix("torch."): one for one in vars(torch).values() if isinstance(one, torch.dtype)}
    known = {name: number(name) for name in names}
    return {dtype.stored: names[name] for name, dtype in known.items() if dtype and not (dtype.tail or dtype.packed)}


@cache
def _numpy_dtypes() -> dict[str, Any]:
    from model_checkpoint.tree.values.numpy_dtypes import from_name

    return {dtype.stored: from_name(name) for name in NUMBERS if (dtype := number(name)) is not None}


def read_safetensors(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors of a file by their names, over its bytes, and what its header tells beside."""
    file = MappedFile(path)
    where = str(path)
    file.require(0, 8)
    length = int.from_bytes(file.bytes[:8], "little")
    if length > _MOST_HEADER or 8 + length > file.size:
        raise SourceUnreadable(
            f"{where}: announces a header of {length} bytes, the file has {file.size}. It is torn, or no safetensors.",
            where,
        )
    try:
        rows = msgspec.json.decode(file.bytes[8 : 8 + length], type=dict[str, msgspec.Raw])
        about = msgspec.json.decode(rows.pop(_ABOUT, msgspec.Raw(b"{}")), type=dict[str, str])
        placed = {name: msgspec.json.decode(row, type=_Placed) for name, row in rows.items()}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise SourceUnreadable(f"{where}: its header cannot be read ({error}). It is no safetensors.", where) from error
    return {name: _tensor(file, name, row, 8 + length) for name, row in placed.items()}, about


def _tensor(file: MappedFile, name: str, row: _Placed, data: int) -> Any:
    torch_there = _has_torch()
    dtypes, place = (_torch_dtypes(), file.tensor) if torch_there else (_numpy_dtypes(), file.array)
    dtype = dtypes.get(row.dtype)
    start, stop = row.data_offsets
    if dtype is None:
        raise SourceUnreadable(
            f"{file.path}: tensor {name!r} is {row.dtype}, which {'torch' if torch_there else 'NumPy'} cannot hold.",
            str(file.path),
        )
    if any(side < 0 for side in row.shape) or prod(row.shape) * dtype.itemsize != stop - start or start < 0:
        raise SourceUnreadable(
            f"{file.path}: tensor {name!r} of {row.dtype} {list(row.shape)} does not take the {stop - start} bytes "
            "that the header gives it. The file is damaged.",
            str(file.path),
        )
    return place(dtype, row.shape, data + start)


def import_safetensors(path: str | os.PathLike[str]) -> Imported:
    """A file as a checkpoint: its tensors are the part ``model``."""
    tensors, about = read_safetensors(path)
    return Imported(state={"model": tensors}, metadata={"safetensors": about} if about else {})
