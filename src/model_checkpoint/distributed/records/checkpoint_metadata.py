"""Checkpoint metadata: what is known of a checkpoint, its files and tensors, without reading a byte of data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.root.listing import read_any_manifest
from model_checkpoint.manifest import Entry, Manifest, unpack
from model_checkpoint.options import CheckpointFormat
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.tree.nodes.walk import MAPPINGS


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """One tensor, or the piece of one, in a file: ``size`` bytes from ``offset`` on.

    Example:
        >>> TensorMetadata("weight", (2, 3), "float32", size=24).whole_shape
        (2, 3)
    """

    name: str
    shape: tuple[int, ...]
    data_type: str
    offset: int = 0
    size: int = 0
    global_shape: tuple[int, ...] | None = None  # of the whole tensor, where this is a piece of it
    global_offset: tuple[int, ...] | None = None  # where in the whole the piece begins

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        return self.shape if self.global_shape is None else self.global_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMetadata:
    """One file of a checkpoint, and the rank that wrote it."""

    rank: int
    file_path: str
    file_size: int
    checksum: str  # hex SHA-256 over the SHA-256 digests of its chunks
    tensors: Sequence[TensorMetadata] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata:
    """One checkpoint as its manifest tells of it."""

    prefix: str
    version: str  # of the format, "1.0.0"
    timestamp: datetime
    world_size: int
    format: CheckpointFormat
    id: str = ""
    path: str = ""
    parts: tuple[str, ...] = ()  # what was saved: "model", "optimizer", "rng"
    shards: Sequence[ShardMetadata] = ()
    custom_fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tensors(self) -> Iterator[TensorMetadata]:
        """Every tensor, or piece of one, of every file."""
        return (tensor for shard in self.shards for tensor in shard.tensors)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(shard.file_size for shard in self.shards)


def metadata_of(store: Store, prefix: str) -> CheckpointMetadata:
    """Read the metadata of one checkpoint.

    Example:
        >>> import model_checkpoint as mc, numpy as np
        >>> from model_checkpoint.storage import open_store
        >>> _ = mc.save("memory://doc-metadata", {"model": {"w": np.zeros((2, 3), np.float32)}}, name="first")
        >>> metadata = metadata_of(open_store("memory://doc-metadata"), "first")
        >>> metadata.parts, [(one.name, one.shape) for one in metadata.tensors]
        (('model',), [('model.w', (2, 3))])
    """
    return describe_manifest(read_any_manifest(store, prefix), path_of(store, prefix))


def describe_manifest(manifest: Manifest, path: str) -> CheckpointMetadata:
    """Put what a manifest says into the words of users."""
    return CheckpointMetadata(
        prefix=manifest.name,
        version=f"{manifest.format_version}.0.0",
        timestamp=datetime.fromisoformat(manifest.created),
        world_size=manifest.world_size,
        format=CheckpointFormat(manifest.layout),
        id=manifest.id,
        path=path,
        parts=_parts(manifest.tree),
        shards=_shards(manifest),
        custom_fields=unpack(manifest.metadata) or {},
    )


def _parts(tree: Any) -> tuple[str, ...]:
    if isinstance(tree, list) and tree and tree[0] in MAPPINGS:
        return tuple(str(key) for key in tree[1][::2])
    return ()


def _shards(manifest: Manifest) -> tuple[ShardMetadata, ...]:
    ranks = {file: number for number, rank in enumerate(manifest.ranks) for file in (rank.name, *rank.files)}
    tensors: dict[int, list[TensorMetadata]] = {}
    for file, tensor in _tensors(manifest):
        tensors.setdefault(file, []).append(tensor)
    return tuple(
        ShardMetadata(
            rank=ranks.get(record.name, 0),
            file_path=record.name,
            file_size=record.size,
            checksum=record.digest,
            tensors=tuple(tensors.get(number, ())),
        )
        for number, record in enumerate((*manifest.files, *manifest.extras))
    )


def _tensors(manifest: Manifest) -> Iterator[tuple[int, TensorMetadata]]:
    """Every stored array or piece of one, with the number of its file."""
    pieces = manifest.pieces
    inner = {at for parts in pieces.values() for _, at in parts}
    for number, entry in enumerate(manifest.entries):
        if number in pieces:
            for offsets, at in pieces[number]:
                yield manifest.entries[at].file, _tensor(manifest.entries[at], entry, offsets)
        elif number not in inner:
            yield entry.file, _tensor(entry, entry, (0,) * len(entry.shape))


def _tensor(stored: Entry, whole: Entry, offsets: tuple[int, ...]) -> TensorMetadata:
    return TensorMetadata(
        name=whole.name,
        shape=stored.shape,
        data_type=whole.dtype,
        offset=stored.start,
        size=stored.nbytes,
        global_shape=whole.shape,
        global_offset=offsets,
    )
