"""Unsharded: files of whole tensors, made by rank 0 from the parts that all ranks have written.

The parts are in the stage, on the medium and voted for. They are read back chunk by chunk, verified, and written in one
pass as files that other programs open; then they go, and nobody has seen them. Memory is a few chunks of each part.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from model_checkpoint.engine.ranks.structure import ArraySign
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader, PlaceChunk, TakeChunk
from model_checkpoint.engine.reading.gather_boxes import BoxGather
from model_checkpoint.engine.root.rank_manifests import join_ranks
from model_checkpoint.engine.writing.manifest_build import write_index
from model_checkpoint.engine.writing.request import SaveRequest
from model_checkpoint.engine.writing.save_plan import plan_flat
from model_checkpoint.engine.writing.slabs import write_files
from model_checkpoint.events import Emit
from model_checkpoint.manifest import RANKS, Entry, Manifest
from model_checkpoint.options import MIB, CheckpointFormat
from model_checkpoint.plan import ChunkRead
from model_checkpoint.state import Flat, Leaf
from model_checkpoint.storage.contract.shared import JointAttempt
from model_checkpoint.storage.contract.store import Reader, Store
from model_checkpoint.tree.nodes.per_rank import holds_choice

_MOST_BYTES = 256 * MIB  # of chunks kept at hand: neighbours in a file are wanted one after the other


def unshard(
    store: Store, stage: JointAttempt, order: SaveRequest, parts: Manifest, signs: Sequence[ArraySign], *, emit: Emit
) -> Manifest:
    """Write the files of whole tensors, remove the parts, and return the manifest of what is left."""
    view = _StagedFiles(store.url, stage)
    joined = join_ranks(view, parts)  # type: ignore[arg-type]  # it opens files, and no more
    with ChunkReader(view, joined, full=False) as medium:  # type: ignore[arg-type]
        medium.prepare(joined.stored_of(range(len(parts.entries))))
        at_hand = _ChunksAtHand(medium)
        names = _unlike([entry.name for entry in parts.entries])
        leaves = [
            Leaf(
                name,
                sign.kind,
                sign.dtype,
                sign.shape,
                sign.stored,
                sign.stored_shape,
                _StagedArray(joined, number, joined.entries[number], at_hand),
                sign.alignment,
                sign.attributes,
                sign.frozen,
            )
            for number, (name, sign) in enumerate(zip(names, signs, strict=True))
        ]
        planned = plan_flat(store, order, Flat(parts.tree, leaves))
        for name, job in planned.named_jobs():
            job.writer = stage.create(name, job.layout.size)
        write_files(planned.writing, emit=emit)
    made = planned.manifest(stage, created=parts.created)
    if order.layout is CheckpointFormat.CONSOLIDATED:
        made = msgspec.structs.replace(made, extras=(write_index(stage, made),))
    stage.drop([name for rank in parts.ranks for name in (rank.name, *rank.files)])
    return msgspec.structs.replace(
        made,
        world_size=parts.world_size,
        layouts=parts.layouts,
        placed=parts.placed,
        features=(*made.features, RANKS) if holds_choice(made.tree) else made.features,
    )


def _unlike(names: Sequence[str]) -> list[str]:
    """Names of which no two are alike, where ranks have arrays of their own under one name."""
    counts: Counter[str] = Counter()
    made = []
    for name in names:
        made.append(f"{name}%r{counts[name]}" if counts[name] else name)
        counts[name] += 1
    return made


@dataclass(frozen=True, slots=True)
class _StagedFiles:
    """The files of an attempt, opened like those of a checkpoint."""

    url: str
    stage: JointAttempt

    def open(self, name: str, file: str) -> Reader:
        """Open one file."""
        return self.stage.open(file)


@dataclass(frozen=True, slots=True)
class _StagedArray:
    """An array that lies in pieces in files of the stage."""

    joined: Manifest
    index: int
    entry: Entry
    at_hand: _ChunksAtHand

    @property
    def nbytes(self) -> int:
        """Bytes of the whole."""
        return self.entry.nbytes

    def window(self, start: int, stop: int) -> memoryview:
        """The bytes ``[start, stop)``, verified."""
        elements = 1
        for side in self.entry.shape:
            elements *= side
        item = self.nbytes // max(1, elements)
        lower, upper = start // item * item, -(-stop // item) * item
        gather, rooms = BoxGather.of_runs(self.joined, self.index, [(lower, upper)])
        gather.run(self.at_hand)
        return rooms[0].data[start - lower : stop - lower]


class _ChunksAtHand:
    """Reads chunks, and keeps the last ones: what follows lies in the same."""

    def __init__(self, medium: ChunkReader) -> None:
        self._medium = medium
        self._kept: OrderedDict[tuple[int, int], memoryview] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()

    def read_chunks(self, reads: Sequence[ChunkRead], place: PlaceChunk, take: TakeChunk) -> None:
        """Hand out each chunk once it is verified."""
        for read in reads:
            take(read, self._chunk(read))

    def _chunk(self, read: ChunkRead) -> memoryview:
        key = (read.file, read.chunk)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        data = memoryview(bytearray(read.stop - read.start))
        self._medium.read_chunk(read.file, read.chunk, data)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = data
                self._nbytes += len(data)
            while self._nbytes > _MOST_BYTES and len(self._kept) > 1:
                _, gone = self._kept.popitem(last=False)
                self._nbytes -= len(gone)
        return data
