"""Export: tensors of a checkpoint as safetensors files that other tools open, each byte verified on the way.

One tensor, or some rows of a large one, passes through memory at a time. A file or folder appears under its name when
it is whole and on the medium.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.option_checks import require
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.reading.tensor_reader import TensorReader
from model_checkpoint.engine.root.describe import TensorLine, describe_state
from model_checkpoint.engine.root.refs import Reference
from model_checkpoint.errors import OptionInvalid, StepExists, UnsupportedType
from model_checkpoint.flushing import flush
from model_checkpoint.format import FileLayout, Tensor, lay_out
from model_checkpoint.name_lists import some_of
from model_checkpoint.options import MIB, LayoutLimits
from model_checkpoint.plan import matcher
from model_checkpoint.storage.contract.failures import typed_errors
from model_checkpoint.tree.values.dtypes import number

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
Buffer = bytes | memoryview
_WINDOW = 64 * MIB
_METADATA = {"format": "pt"}  # what tools for torch look for before they open a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote."""

    files: tuple[str, ...]
    tensors: int
    nbytes: int


def export_file(
    ref: Reference,
    target: str | os.PathLike[str],
    *,
    parts: str | Sequence[str] | None = None,
    progress: Listen = None,
) -> Exported:
    """Write the tensors of ``parts`` (all by default) into one safetensors file, under the names they were saved with.

    ``progress`` is called as bytes are written; True shows a bar.

    Example:
        >>> import model_checkpoint as mc, numpy as np, tempfile
        >>> _ = mc.save("memory://doc-export", {"model": {"w": np.ones(3)}, "epoch": 1}, step=1)
        >>> export_file("memory://doc-export", tempfile.mkdtemp() + "/w.safetensors").tensors
        1
    """
    info, lines = _chosen(ref, parts)
    path = free_place(Path(target))
    with draft_of(path) as draft:
        return _written(info, {draft: {line.name: line for line in lines}}, {draft: path}, progress)


def export_folder(
    ref: Reference,
    target: str | os.PathLike[str],
    *,
    part: str = "model",
    beside: Mapping[str, bytes] | None = None,
    progress: Listen = None,
) -> Exported:
    """Write one part as a folder that ``from_pretrained`` opens, under its own names, cut where files grow large.

    ``beside`` are small files to put there too, such as ``config.json``.

    Example:
        >>> import model_checkpoint as mc, numpy as np, tempfile
        >>> _ = mc.save("memory://doc-export-hf", {"model": {"w": np.ones(3)}}, step=1)
        >>> folder = tempfile.mkdtemp() + "/model"
        >>> [Path(file).name for file in export_folder("memory://doc-export-hf", folder).files]
        ['model.safetensors']
    """
    info, lines = _chosen(ref, part)
    named = {line.name.removeprefix(f"{part}."): line for line in lines}
    folder, shards = free_place(Path(target)), _cut(named)
    names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    with draft_of(folder) as draft:
        files = {
            draft / name: shard for name, shard in zip(names if len(shards) > 1 else [WEIGHTS], shards, strict=True)
        }
        done = _written(info, files, {path: folder / path.name for path in files}, progress)
        for name, data in (beside or {}).items():
            _write(draft / name, [data])
        done = replace(done, files=(*done.files, *(str(folder / name) for name in beside or {})))
        if len(shards) == 1:
            return done
        where = {name: path.name for path, shard in files.items() for name in shard}
        index = {"metadata": {"total_size": done.nbytes}, "weight_map": where}
        _write(draft / INDEX, [msgspec.json.encode(index)])
        return replace(done, files=(*done.files, str(folder / INDEX)))


def _chosen(ref: Reference, parts: str | Sequence[str] | None) -> tuple[CheckpointInfo, list[TensorLine]]:
    """Which checkpoint is meant, whatever is saved meanwhile, and which of its tensors."""
    found, wanted = describe_state(ref), matcher(parts)
    lines = [line for line in found.tensors if wanted(line.name)]
    if not lines:
        known = some_of([part.name for part in found.parts])
        raise OptionInvalid(f"{found.info.path}: no tensor in {parts!r}; its parts are {known}. Nothing was written.")
    for line in lines:
        dtype = number(line.dtype)
        if dtype is None or dtype.tail:
            raise UnsupportedType(
                f"{found.info.path}: {line.name} is {line.dtype}, which a safetensors file has no word for. "
                "Leave it out with parts=, or load it with mc.load."
            )
    return found.info, lines


def free_place(target: Path) -> Path:
    """Return ``target``, or raise if something is there."""
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


def _written(
    info: CheckpointInfo, files: dict[Path, dict[str, TensorLine]], finals: dict[Path, Path], progress: Listen
) -> Exported:
    require(progress=progress)
    total = sum(line.nbytes for named in files.values() for line in named.values())
    with TensorReader(info) as tensors, listening(progress, "exporting") as emit:
        meter = Meter("export", total, emit)
        for path, named in files.items():
            outline = [_tensor(name, line) for name, line in named.items()]
            layout = lay_out(outline, metadata=_METADATA, chunk_bytes=1 << 62)
            _write(path, _content(tensors, list(named.values()), layout, meter))
    count = sum(map(len, files.values()))
    return Exported(files=tuple(str(finals[path]) for path in files), tensors=count, nbytes=total)


def _tensor(name: str, line: TensorLine) -> Tensor:
    dtype = number(line.dtype)
    assert dtype is not None  # refused before
    return Tensor(name, dtype.stored, dtype.stored_shape(line.shape) or line.shape, line.nbytes, dtype.alignment)


def _content(tensors: TensorReader, lines: Sequence[TensorLine], layout: FileLayout, meter: Meter) -> Iterator[Buffer]:
    yield layout.header
    for place in layout.order:
        for first, last in _windows(lines[place]):
            data = _rows_of(tensors, lines[place], first, last)
            yield data
            meter.add(len(data))


def _rows_of(tensors: TensorReader, line: TensorLine, first: int, last: int) -> memoryview:
    """Some rows of a tensor, as they are stored; what does not lie there in one stretch is gathered."""
    if not tensors.is_view(line.name):
        row = line.nbytes // _rows(line)
        return tensors.stored_bytes(line.name, first * row, last * row)
    import numpy as np

    from model_checkpoint.engine.reading.slices import load_slice

    array = load_slice(tensors.info, line.name, slice(first, last) if line.shape else ..., framework="numpy")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _windows(line: TensorLine) -> Iterator[tuple[int, int]]:
    """Which rows of a tensor are in memory at a time: all of them, or some of a large one."""
    rows = _rows(line)
    step = max(1, rows if line.nbytes <= _WINDOW else rows * _WINDOW // line.nbytes)
    yield from ((first, min(rows, first + step)) for first in range(0, rows, step))


def _rows(line: TensorLine) -> int:
    return line.shape[0] if line.shape else 1


@contextmanager
def draft_of(target: Path) -> Iterator[Path]:
    """A place beside ``target`` to write to; it gets that name when the block ends well, and goes when it does not."""
    draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")
    try:
        yield draft
        with typed_errors(str(target), "could not be put in place"):
            if draft.is_dir():
                flush(draft)
            os.rename(draft, free_place(target))
            flush(target.parent)
    finally:
        if draft.is_dir():
            shutil.rmtree(draft)
        draft.unlink(missing_ok=True)


def _write(path: Path, content: Iterable[Buffer]) -> None:
    """Write a file and flush it."""
    with typed_errors(str(path), "could not be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb") as file:
            for piece in content:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
