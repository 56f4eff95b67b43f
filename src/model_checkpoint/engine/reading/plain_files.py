"""Plain files: files of a checkpoint that hold no tensors of ours, read and compared with their digests by chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import xxhash

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.reading.chunk_reader import open_sized
from model_checkpoint.format import sha256_each, sha256_of, xxh3_of
from model_checkpoint.manifest import FileRecord, Manifest
from model_checkpoint.storage.contract.store import Store

_LANES = 3  # chunks whose SHA-256 is computed side by side


class PlainChunk(NamedTuple):
    """A piece of a file and whether it is as it was written; ``data`` is good until the next one is asked for."""

    number: int
    start: int
    data: memoryview
    healthy: bool


def read_plain(store: Store, manifest: Manifest, record: FileRecord, *, full: bool) -> Iterator[PlainChunk]:
    """Read one file from its start to its end; with ``full`` SHA-256 is compared, else xxh3."""
    reader = open_sized(store, manifest.name, record, path_of(store, manifest.name))
    try:
        wanted = sha256_of(record) if full else xxh3_of(record)
        starts = [0, *record.ends[:-1]]
        buffers: list[bytearray] = []
        for first in range(0, len(starts), _LANES):
            numbers = range(first, min(first + _LANES, len(starts)))
            buffers = buffers or [bytearray(max(record.ends[n] - starts[n] for n in numbers)) for _ in numbers]
            found = [memoryview(buffers[n - first])[: record.ends[n] - starts[n]] for n in numbers]
            for number, data in zip(numbers, found, strict=True):
                reader.read_into(starts[number], data)
            digests = sha256_each(found) if full else [xxhash.xxh3_128_digest(data) for data in found]
            for number, data, digest in zip(numbers, found, digests, strict=True):
                yield PlainChunk(number, starts[number], data, digest == wanted[number])
    finally:
        reader.close()
