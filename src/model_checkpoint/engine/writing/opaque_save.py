"""Opaque save: files that a storage backend wrote become a checkpoint like any other.

The backend writes under a path it is given, in a stage nobody sees. Then each byte is read once, for its digest; the
files are flushed and committed with the manifest last. What is inside them is the backend's affair.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from model_checkpoint.engine.common.info import CheckpointInfo, info_of, path_of
from model_checkpoint.engine.common.workers import Pace, cores, run_all
from model_checkpoint.engine.jobs import inflight
from model_checkpoint.engine.root.recover import recover_once
from model_checkpoint.engine.writing.commit_time import commit_time
from model_checkpoint.engine.writing.manifest_build import manifest_of
from model_checkpoint.engine.writing.request import SaveRequest, request_save
from model_checkpoint.engine.writing.slabs import FileJob, write_files
from model_checkpoint.errors import CheckpointException, NothingWritten, UnsafeName
from model_checkpoint.events import ignore
from model_checkpoint.format import ChunkDigest, digest_chunks, file_record, opaque_layout
from model_checkpoint.manifest import OPAQUE, FileRecord, Manifest, encode, pack
from model_checkpoint.name_lists import some_of
from model_checkpoint.options import CheckpointFormat, LayoutLimits
from model_checkpoint.storage.contract.failures import name_taken
from model_checkpoint.storage.contract.names import MANIFEST, MANIFEST_DRAFT, is_name
from model_checkpoint.storage.contract.store import Adopting, Attempt, Reader
from model_checkpoint.storage.locate import Root, open_store

log = logging.getLogger("model_checkpoint.save")

_CHUNK = LayoutLimits().chunk_bytes
_LANES = 3  # chunks whose SHA-256 is computed side by side
_MOST_READERS = 16


def save_opaque(
    root: Root,
    write: Callable[[str], Any],
    *,
    backend: str,
    file: str = "checkpoint",
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    metadata: Mapping[str, Any] | None = None,
    name: str | None = None,
    id: str | None = None,  # the name users know
) -> CheckpointInfo:
    """Let ``write`` make files at, below or beside the path it is called with, and commit them as one checkpoint.

    Args:
        root: See :func:`~model_checkpoint.engine.writing.save.save`, like all that is not named here.
        write: Called once with a path in a folder of its own, whose last part is ``file``.
        backend: Who can read the files; the manifest remembers it.
        file: What the file, or folder, to be written is called.
        step: Training step.
        metrics: Numbers to choose by later.
        metadata: Plain data to keep beside the state.
        name: Folder name, instead of one made from the step.
        id: The id of the checkpoint, instead of a random one.

    Raises:
        NothingWritten: ``write`` left no byte where it was told to.

    Example:
        >>> from pathlib import Path
        >>> write = lambda path: Path(path).write_bytes(b"mine")
        >>> save_opaque("memory://doc-opaque", write, backend="mine", file="a.bin", step=3).size_bytes
        4
    """
    order = request_save(step=step, name=name, metrics=metrics, metadata=metadata, id=id)
    store = open_store(root)
    inflight.raise_unseen(store.url)
    where = path_of(store, order.name)
    if store.has(order.name):
        raise name_taken(where)
    log.info("%s: saving through %s", where, backend)
    recover_once(store)
    stage = store.stage(order.name, order.attempt)
    try:
        with _room(stage) as folder:
            write(os.path.join(folder, file))
            found = _written(folder, where)
            _require_bytes(found, where, backend, file)
            records = _take(stage, folder, found)
        created = commit_time(store, order)
        manifest = _compose(order, records, stage, inside=_inside(backend, file, found), created=created)
        stage.publish(encode(manifest))
    except BaseException:
        with suppress(CheckpointException):  # the first error is the one to tell; recovery sweeps what is left
            stage.abort()
        raise
    return info_of(store, manifest)


@contextmanager
def _room(stage: Attempt) -> Iterator[str]:
    """Where the backend may write: within the stage where that is on this machine, else in a temporary folder."""
    if isinstance(stage, Adopting):
        yield stage.room()
        return
    with TemporaryDirectory(prefix="mckpt-") as folder:
        yield folder


def _written(folder: str, where: str) -> dict[str, int]:
    """Every file below ``folder`` with its size; what is no file has no bytes that could be kept."""
    found: dict[str, int] = {}
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(above, name)
            info = os.lstat(path)
            if stat.S_ISREG(info.st_mode):
                found[os.path.relpath(path, folder)] = info.st_size
            elif not stat.S_ISDIR(info.st_mode):
                raise UnsafeName(
                    f"{where}: the backend made {name!r}, which is neither a file nor a folder. Let it write bytes.",
                    where,
                    file=name,
                )
    return dict(sorted(found.items()))


def _require_bytes(found: Mapping[str, int], where: str, backend: str, file: str) -> None:
    if not any(found.values()):
        made = f"only empty files: {some_of(list(found))}" if found else "nothing"
        raise NothingWritten(
            f"{where}: the storage backend {backend} wrote {made} at the path it was given (.../{file}); nothing was "
            "committed. Let its save method write to that very path.",
            where,
        )


def _flat(found: Mapping[str, int]) -> dict[str, str]:
    """The name in the checkpoint of each file that has bytes: its own where that is a plain one, else a number."""
    plain = [path for path, size in found.items() if size and is_name(path) and not path.startswith(".")]
    names = {path: path for path in plain if path.casefold() not in (MANIFEST, MANIFEST_DRAFT)}
    taken = {name.casefold() for name in names}
    if len(taken) < len(names):  # two that differ only in case
        names, taken = {}, set()
    for number, path in enumerate(path for path, size in found.items() if size and path not in names):
        name = f"file-{number}"
        while name in taken:
            name += "-"
        names[path] = name
        taken.add(name)
    return names


def _inside(backend: str, file: str, found: Mapping[str, int]) -> dict[str, Any]:
    """What is needed to lay the files out again as the backend wrote them."""
    paths = {name: path for path, name in _flat(found).items()}
    return {
        "backend": backend,
        "file": file,
        "paths": paths,
        "empty": [path for path, size in found.items() if not size],
    }


def _take(stage: Attempt, folder: str, found: Mapping[str, int]) -> list[FileRecord]:
    """Bring the files into the stage, flushed, each byte hashed once."""
    names = _flat(found)
    if isinstance(stage, Adopting):
        return [_adopted(stage.adopt(path, name), name) for path, name in names.items()]
    jobs = {}
    for path, name in names.items():
        source = _FileBytes(os.path.join(folder, path))
        jobs[name] = FileJob(opaque_layout(source.nbytes, chunk_bytes=_CHUNK), [source])
        jobs[name].writer = stage.create(name, source.nbytes)
    write_files(list(jobs.values()), emit=ignore)
    return [_record(name, job.layout.size, job.digests) for name, job in jobs.items()]


class _FileBytes:
    """A file as a source of bytes; its pages are the system's, so memory does not grow with it."""

    def __init__(self, path: str) -> None:
        self._map = np.memmap(path, dtype=np.uint8, mode="r")

    @property
    def nbytes(self) -> int:
        return self._map.nbytes

    def window(self, start: int, stop: int) -> memoryview:
        return self._map[start:stop].data


def _adopted(reader: Reader, name: str) -> FileRecord:
    """Hash a file that lies in the stage already, a few chunks side by side in a few threads."""
    starts = range(0, reader.size, _CHUNK)
    digests: list[ChunkDigest | None] = [None] * len(starts)

    def worker(groups: Iterator[int]) -> None:
        slab = bytearray(min(reader.size, _LANES * _CHUNK))
        for first in groups:
            chunks = []
            for lane, start in enumerate(starts[first : first + _LANES]):
                chunk = memoryview(slab)[lane * _CHUNK : lane * _CHUNK + min(_CHUNK, reader.size - start)]
                reader.read_into(start, chunk)
                chunks.append(chunk)
            digests[first : first + len(chunks)] = digest_chunks(chunks)

    try:
        run_all(worker, range(0, len(starts), _LANES), pace=Pace(most=min(_MOST_READERS, cores())))
    finally:
        reader.close()
    return _record(name, reader.size, [digest for digest in digests if digest is not None])


def _record(name: str, size: int, digests: Sequence[ChunkDigest]) -> FileRecord:
    ends = opaque_layout(size, chunk_bytes=_CHUNK).ends
    record = file_record(name, size=size, ends=ends, digests=digests)
    return msgspec.structs.replace(record, verified=int(time.time()))


def _compose(
    order: SaveRequest, records: Sequence[FileRecord], stage: Attempt, *, inside: Mapping[str, Any], created: str
) -> Manifest:
    stamps = stage.stamps()
    layout = CheckpointFormat.SINGLE_FILE if len(records) == 1 else CheckpointFormat.MULTI_SHARD
    return msgspec.structs.replace(
        manifest_of(order, pack(dict(inside)), (), created=created),
        layout=layout.value,
        features=(OPAQUE,),
        extras=tuple(msgspec.structs.replace(one, identity=stamps[one.name].identity) for one in records),
    )
