"""Mirror: a checkpoint copied to a second root, every chunk verified on the way.

The copy is an ordinary checkpoint: same name, same files, the very same manifest, its parity files too if they are
there. It appears when it is whole, by the commit of its own store; a copy that was cut off leaves nothing to be seen,
and is made from the beginning.
"""

from __future__ import annotations

import logging
import time
import uuid

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.reading.chunks.chunk_reader import open_sized
from model_checkpoint.engine.reading.chunks.parity_files import ParityFiles
from model_checkpoint.engine.reading.chunks.stored_chunks import stored_chunks
from model_checkpoint.engine.repairing.file_stream import FileStream
from model_checkpoint.engine.root.rank_manifests import read_summary
from model_checkpoint.errors import CheckpointException, CheckpointNotFound, ChunkMismatch, StepExists
from model_checkpoint.format import check_files
from model_checkpoint.manifest import FileRecord, Summary, decode_summary
from model_checkpoint.options import MIB, ReaderLimits
from model_checkpoint.storage.contract.store import Attempt, Store

log = logging.getLogger("model_checkpoint.repair")

_PIECE = 4 * MIB


def copy_checkpoint(source: Store, name: str, target: Store) -> bool:
    """Copy ``name`` to another root unless it is there; an older version of it is replaced. Whether anything was done.

    Raises:
        ChunkMismatch: the checkpoint is damaged; nothing appears in the other root.
    """
    started, where = time.monotonic(), path_of(source, name)
    raw = source.read_manifest(name)
    there = _manifest_in(target, name)
    if there == raw:
        return False
    summary = read_summary(source, name, raw)
    check_files((*summary.files, *summary.extras), where, ReaderLimits())
    # the files of a replacement must carry the id of its attempt, which is the one they were saved by
    attempt = uuid.uuid4().hex if there is None else summary.attempt
    stage = target.stage(name, attempt)
    try:
        for record in (*summary.files, *summary.extras):
            _copy_file(source, name, record, stage)
        _copy_parity(source, name, summary, stage)
        stage.publish(raw, replace=there is not None, obsolete=_files_of(there, path_of(target, name)))
    except StepExists:
        stage.abort()
        if _manifest_in(target, name) != raw:  # else another process, or a publication whose answer was lost
            raise
    except BaseException:
        stage.abort()
        raise
    log.info("%s: copied to %s in %.3f s", where, target.url, time.monotonic() - started)
    return True


def _manifest_in(store: Store, name: str) -> bytes | None:
    try:
        return store.read_manifest(name)
    except CheckpointNotFound:
        return None


def _files_of(manifest: bytes | None, where: str) -> tuple[str, ...]:
    """What the version to be replaced consists of; nothing for sure if its manifest is damaged."""
    try:
        return () if manifest is None else decode_summary(manifest, where).file_names
    except CheckpointException:
        return ()


def _copy_file(source: Store, name: str, record: FileRecord, stage: Attempt) -> None:
    where = path_of(source, name)
    reader = open_sized(source, name, record, where)
    try:
        stream = FileStream(stage.create(record.name, record.size))
        for number, chunk in enumerate(stored_chunks(record)):
            data = memoryview(bytearray(chunk.stop - chunk.start))
            reader.read_into(chunk.start, data)
            if not chunk.is_intact(data):
                raise ChunkMismatch(
                    f"{where}/{record.name}: chunk {number} does not have the recorded digest, so it is not copied. "
                    "Run `mckpt repair`.",
                    where,
                    file=record.name,
                    chunk=number,
                )
            stream.write(data)
        stream.close()
    finally:
        reader.close()


def _copy_parity(source: Store, name: str, summary: Summary, stage: Attempt) -> None:
    """Copy the parity files that are there and whole; the others can be made where the copy lies."""
    with ParityFiles(source, name, summary.parity_files, path_of(source, name)) as parity:
        spoiled = {*parity.problems, *(file for file, _, _ in parity.broken_blocks())}
    for file in summary.parity_files:
        if file in spoiled:
            log.warning("%s/%s: is missing or damaged, so the copy has none of it", path_of(source, name), file)
        else:
            _copy_bytes(source, name, file, stage)


def _copy_bytes(source: Store, name: str, file: str, stage: Attempt) -> None:
    reader = source.open(name, file)
    try:
        stream = FileStream(stage.create(file, reader.size))
        for start in range(0, reader.size, _PIECE):
            data = memoryview(bytearray(min(_PIECE, reader.size - start)))
            reader.read_into(start, data)
            stream.write(data)
        stream.close()
    finally:
        reader.close()
