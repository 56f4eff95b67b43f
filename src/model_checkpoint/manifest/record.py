"""Record: the values a manifest is made of.

Everything below the top level is an array in JSON (``array_like``): smaller, faster, and without room for duplicate
keys. New fields go to the end of a record, with a default, so that older manifests stay readable.
"""

from __future__ import annotations

import msgspec

from model_checkpoint.manifest.scalars import Node

FORMAT_VERSION = 1


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One stored array: what it is, and the bytes ``[start, stop)`` of one data file that hold it."""

    name: str
    kind: str  # which adapter gives it back: "torch", "numpy", "jax", "tensorflow", "bytes", ...
    dtype: str  # logical dtype, in the adapter's words
    shape: tuple[int, ...]
    stored: str  # dtype in the safetensors header
    stored_shape: tuple[int, ...] | None  # shape in the header where it differs
    file: int
    start: int
    stop: int
    digest: str  # xxh3-128 of the content: of its bytes, or of its chunks' digests when longer than one chunk
    attributes: Node = None  # the adapter's own remarks

    @property
    def nbytes(self) -> int:
        """Raw size."""
        return self.stop - self.start


class FileRecord(msgspec.Struct, frozen=True, array_like=True):
    """One data file: its size, and the digests of the chunks it is cut into."""

    name: str
    size: int
    ends: tuple[int, ...]  # chunk i is the bytes [ends[i-1], ends[i]); chunk 0 is the header
    sha256: str  # base64 of the chunks' SHA-256 digests, one after the other
    xxh3: str  # base64 of the chunks' xxh3-128 digests
    digest: str  # hex SHA-256 over the chunks' SHA-256 digests


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing needs of a manifest; decoding skips the rest."""

    format: str = "model_checkpoint"
    format_version: int = FORMAT_VERSION
    min_reader: int = 1
    features: tuple[str, ...] = ()  # what a reader must know to read this rightly
    id: str
    attempt: str
    name: str  # the folder's name
    step: int | None
    created: str  # UTC, ISO 8601
    layout: str  # CheckpointFormat value
    compression: str  # CompressionLevel value
    world_size: int = 1
    metrics: Node = None
    metadata: Node = None
    parents: tuple[str, ...] = ()
    files: tuple[FileRecord, ...] = ()
    extras: tuple[FileRecord, ...] = ()  # files beside the data, such as the index of a consolidated model


class Manifest(Summary, frozen=True, kw_only=True):
    """All of one checkpoint but the array bytes."""

    tree: Node = None
    entries: tuple[Entry, ...] = ()
