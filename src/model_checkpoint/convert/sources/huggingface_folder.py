"""Hugging Face folder: weights as ``from_pretrained`` opens them, with the small files beside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from model_checkpoint.convert.errors import SourceUnreadable
from model_checkpoint.convert.sources.imported import Imported
from model_checkpoint.convert.sources.safetensors_file import read_safetensors
from model_checkpoint.options import MIB
from model_checkpoint.storage.contract.names import is_name

FILES = "hf_files"  # the part that keeps the small files, so that a folder exported again is complete
_SMALL = 16 * MIB
_KEPT = (".json", ".txt", ".model", ".jinja")
_WEIGHTS = (
    ("model.safetensors.index.json", "model.safetensors"),
    ("pytorch_model.bin.index.json", "pytorch_model.bin"),
)


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def weight_files(folder: Path) -> list[str]:
    """The files that hold the weights of a folder, or tell where they are; empty if it has none."""
    return [name for pair in _WEIGHTS for name in pair if (folder / name).is_file()][:1]


def import_huggingface(folder: str | os.PathLike[str]) -> Imported:
    """A folder as a checkpoint: the weights are the part ``model``, its small files the part ``hf_files``."""
    return Imported(state={"model": read_weights(Path(folder)), FILES: small_files(Path(folder))})


def read_weights(folder: Path) -> dict[str, Any]:
    """The weights by their names, over the bytes of their files."""
    found = weight_files(folder)
    if not found:
        raise SourceUnreadable(f"{folder}: has no weights that from_pretrained would look for.", str(folder))
    if not found[0].endswith(".index.json"):
        return _read(folder / found[0])
    index = _index(folder / found[0])
    files = {name: _read(folder / _plain(name, folder)) for name in sorted(set(index.values()))}
    lost = [name for name, file in index.items() if name not in files[file]]
    if lost:
        raise SourceUnreadable(
            f"{folder}: {lost[0]!r} and {len(lost) - 1} more stand in {found[0]}, but not in the files it names. "
            "The folder is not whole; fetch it again.",
            str(folder),
        )
    return {name: files[file][name] for name, file in index.items()}


def _index(path: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Index).weight_map
    except (msgspec.DecodeError, OSError, UnicodeError) as error:
        raise SourceUnreadable(f"{path}: is no index of weights ({error}).", str(path)) from error


def _plain(name: str, folder: Path) -> str:
    if not is_name(name):
        raise SourceUnreadable(f"{folder}: its index names {name!r}, which is no file of the folder.", str(folder))
    return name


def _read(path: Path) -> dict[str, Any]:
    if path.suffix == ".safetensors":
        return dict(read_safetensors(path)[0])
    from model_checkpoint.convert.sources.torch_file import read_torch  # brings torch

    state = read_torch(path)
    if not isinstance(state, dict):
        raise SourceUnreadable(f"{path}: holds a {type(state).__qualname__}, expected weights by name.", str(path))
    return state


def small_files(folder: Path) -> dict[str, bytes]:
    """What lies beside the weights: the configuration, the files of a tokenizer."""
    names = [name for pair in _WEIGHTS for name in pair]
    found = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix in _KEPT)
    return {path.name: path.read_bytes() for path in found if path.name not in names and path.stat().st_size <= _SMALL}
