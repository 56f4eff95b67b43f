"""Blobs: small checkpoints made of plain bytes, to exercise a store without tensors."""

from __future__ import annotations

import hashlib
import mmap
import secrets
from collections.abc import Mapping, Sequence

from model_checkpoint.manifest import FileRecord, Manifest, decode, encode
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.store import Attempt, Mending, Store, Writer

AT_ONCE = Graces(local=0.0, foreign=0.0, trash=0.0)  # a sweep waits for nothing


def blob_manifest(name: str, attempt: str, files: Mapping[str, bytes]) -> bytes:
    """A manifest that lists ``files`` by size and SHA-256, and nothing else.

    Example:
        >>> decode(blob_manifest("step-1", "a1", {"x": b"abc"}), "here").files[0].size
        3
    """
    records = tuple(
        FileRecord(name=file, size=len(data), ends=(), sha256="", xxh3="", digest=hashlib.sha256(data).hexdigest())
        for file, data in files.items()
    )
    manifest = Manifest(
        id=attempt,
        attempt=attempt,
        name=name,
        step=None,
        created="2026-01-01T00:00:00+00:00",
        layout="multi_shard",
        compression="none",
        files=records,
    )
    return encode(manifest)


def write_blob(writer: Writer, data: bytes) -> None:
    """Write all of ``data`` in the blocks the writer wants."""
    size = -(-len(data) // writer.alignment) * writer.alignment
    if size:
        buffer = mmap.mmap(-1, size)  # page-aligned
        buffer[: len(data)] = data
        writer.write(0, memoryview(buffer))


def seal_blob(stage: Attempt | Mending, file: str, data: bytes) -> None:
    """Write one file of an attempt or of a mending whole, and seal it."""
    writer = stage.create(file, len(data))
    write_blob(writer, data)
    writer.seal()


def stage_blobs(store: Store, name: str, files: Mapping[str, bytes], *, attempt: str) -> Attempt:
    """Begin an attempt and seal ``files`` in it; on failure nothing of it stays."""
    stage = store.stage(name, attempt)
    try:
        for file, data in files.items():
            seal_blob(stage, file, data)
    except BaseException:
        stage.abort()
        raise
    return stage


def save_blobs(
    store: Store,
    name: str,
    files: Mapping[str, bytes],
    *,
    attempt: str | None = None,
    replace: bool = False,
    obsolete: Sequence[str] = (),
) -> str:
    """Save ``files`` as checkpoint ``name``, as the engine would; return the attempt id."""
    attempt = attempt or secrets.token_hex(16)
    stage = stage_blobs(store, name, files, attempt=attempt)
    try:
        stage.publish(blob_manifest(name, attempt, files), replace=replace, obsolete=obsolete)
    except BaseException:
        stage.abort()
        raise
    return attempt


def load_blobs(store: Store, name: str) -> dict[str, bytes]:
    """Every file the manifest lists, checked against it; raise AssertionError if one is not what was saved."""
    loaded = {}
    for record in decode(store.read_manifest(name), name).files:
        reader = store.open(name, record.name)
        buffer = bytearray(reader.size)
        reader.read_into(0, memoryview(buffer))
        reader.close()
        data = bytes(buffer)
        if len(data) != record.size or hashlib.sha256(data).hexdigest() != record.digest:
            raise AssertionError(f"{store.url}/{name}/{record.name}: the bytes are not those that were saved")
        loaded[record.name] = data
    return loaded
