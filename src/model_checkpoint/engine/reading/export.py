"""Export: tensors of a checkpoint as safetensors files that other tools open, each byte verified on the way.

One tensor at a time passes through memory. A file appears under its name when it is whole and on the medium.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from model_checkpoint.engine.reading.slices import load_slice
from model_checkpoint.engine.root.describe import TensorLine, describe
from model_checkpoint.engine.root.refs import Reference
from model_checkpoint.errors import OptionInvalid, StepExists, UnsupportedType
from model_checkpoint.format import FileLayout, Tensor, lay_out
from model_checkpoint.options import LayoutLimits
from model_checkpoint.plan import matcher
from model_checkpoint.storage.contract.failures import typed_errors
from model_checkpoint.tree.values.dtypes import number

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
Buffer = bytes | memoryview
_METADATA = {"format": "pt"}  # what tools for torch look for before they open a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote."""

    files: tuple[str, ...]
    tensors: int
    nbytes: int


def export_file(
    ref: Reference, target: str | os.PathLike[str], *, parts: str | Sequence[str] | None = None
) -> Exported:
    """Write the tensors of ``parts`` (all by default) into one safetensors file, under the names they were saved with.

    Example:
        >>> import model_checkpoint as mc, numpy as np, tempfile
        >>> _ = mc.save("memory://doc-export", {"model": {"w": np.ones(3)}, "epoch": 1}, step=1)
        >>> export_file("memory://doc-export", tempfile.mkdtemp() + "/w.safetensors").tensors
        1
    """
    lines = _chosen(ref, parts)
    path = _free(Path(target))
    return _written(ref, {path: {line.name: line for line in lines}})


def export_folder(ref: Reference, target: str | os.PathLike[str], *, part: str = "model") -> Exported:
    """Write one part as a folder that ``from_pretrained`` opens, under its own names, cut where files grow large.

    Example:
        >>> import model_checkpoint as mc, numpy as np, tempfile
        >>> _ = mc.save("memory://doc-export-hf", {"model": {"w": np.ones(3)}}, step=1)
        >>> folder = tempfile.mkdtemp() + "/model"
        >>> [Path(file).name for file in export_folder("memory://doc-export-hf", folder).files]
        ['model.safetensors']
    """
    named = {line.name.removeprefix(f"{part}."): line for line in _chosen(ref, part)}
    folder = _free(Path(target))
    shards = _cut(named)
    if len(shards) == 1:
        return _written(ref, {folder / WEIGHTS: named})
    files = {folder / f"model-{i:05d}-of-{len(shards):05d}.safetensors": shard for i, shard in enumerate(shards, 1)}
    done = _written(ref, files)
    where = {name: path.name for path, shard in files.items() for name in shard}
    index = msgspec.json.encode({"metadata": {"total_size": done.nbytes}, "weight_map": where})
    _publish(folder / INDEX, [index])
    return Exported(files=(*done.files, str(folder / INDEX)), tensors=done.tensors, nbytes=done.nbytes)


def _chosen(ref: Reference, parts: str | Sequence[str] | None) -> list[TensorLine]:
    found, wanted = describe(ref), matcher(parts)
    lines = [line for line in found.tensors if wanted(line.name)]
    if not lines:
        known = ", ".join(part.name for part in found.parts)
        raise OptionInvalid(f"{found.info.path}: no tensor in {parts!r}; its parts are {known}. Nothing was written.")
    for line in lines:
        dtype = number(line.dtype)
        if dtype is None or dtype.tail:
            raise UnsupportedType(
                f"{found.info.path}: {line.name} is {line.dtype}, which a safetensors file has no word for. "
                "Leave it out with parts=, or load it with mc.load."
            )
    return lines


def _free(target: Path) -> Path:
    if target.exists():
        raise StepExists(f"{target}: exists already; nothing was written. Choose another place, or remove it.")
    return target


def _cut(named: dict[str, TensorLine]) -> list[dict[str, TensorLine]]:
    """Whole tensors in a row, as many as fit a file."""
    shards: list[dict[str, TensorLine]] = [{}]
    room = LayoutLimits().file_bytes
    for name, line in named.items():
        if shards[-1] and sum(one.nbytes for one in shards[-1].values()) + line.nbytes > room:
            shards.append({})
        shards[-1][name] = line
    return shards


def _written(ref: Reference, files: dict[Path, dict[str, TensorLine]]) -> Exported:
    total = tensors = 0
    for path, named in files.items():
        layout = lay_out([_tensor(name, line) for name, line in named.items()], metadata=_METADATA, chunk_bytes=1 << 62)
        _publish(path, _content(ref, list(named.values()), layout))
        total += sum(line.nbytes for line in named.values())
        tensors += len(named)
    return Exported(files=tuple(map(str, files)), tensors=tensors, nbytes=total)


def _tensor(name: str, line: TensorLine) -> Tensor:
    dtype = number(line.dtype)
    assert dtype is not None  # refused before
    return Tensor(name, dtype.stored, line.shape, line.nbytes, dtype.alignment)


def _content(ref: Reference, lines: Sequence[TensorLine], layout: FileLayout) -> Iterator[Buffer]:
    yield layout.header
    for place in layout.order:
        array = load_slice(ref, lines[place].name, ..., framework="numpy")
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _publish(path: Path, content: Iterable[Buffer]) -> None:
    """Write a file beside its place, flush it, and put it there."""
    with typed_errors(str(path), "could not be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.part")
        try:
            with open(draft, "wb") as file:
                for piece in content:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
