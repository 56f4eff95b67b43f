"""Chunk sources: where the bytes of a damaged chunk can still be had.

In this order: an equal chunk of another file of the root, the parity files, a second store. Whatever a source gives is
believed only if it has the chunk's SHA-256.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.reading.chunks.open_readers import OpenReaders
from model_checkpoint.engine.reading.chunks.parity_files import ParityFiles
from model_checkpoint.engine.reading.chunks.stored_chunks import StoredChunk, stored_chunks
from model_checkpoint.engine.root.rank_manifests import read_summary
from model_checkpoint.errors import CheckpointException
from model_checkpoint.format import TooManyLost, check_files, lost_columns
from model_checkpoint.format.parity import ColumnPlace, places
from model_checkpoint.manifest import FileRecord, Summary, decode_summary
from model_checkpoint.options import MIB, ReaderLimits
from model_checkpoint.storage.contract.store import Reader, Store

log = logging.getLogger("model_checkpoint.repair")

TWIN, PARITY, SECOND = "another checkpoint", "parity", "second store"

_REMEMBERED = 4  # chunks fetched a moment ago; parity asks for those of other columns piece by piece

_WINDOW = MIB  # of each column at a time, in memory that is used again

Key = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class _Twin:
    """A chunk somewhere else that should hold the same bytes."""

    store: Store
    name: str
    file: str
    chunk: StoredChunk


@dataclass(slots=True)
class RepairTarget:
    """A checkpoint under repair: what it should be, and which of its chunks are damaged."""

    store: Store
    name: str
    raw: bytes  # its manifest
    summary: Summary
    damaged: dict[str, set[int]] = field(default_factory=dict)  # by file: the chunks that are not what they should be

    @property
    def records(self) -> dict[str, FileRecord]:
        """Its files, but for parity."""
        return {record.name: record for record in (*self.summary.files, *self.summary.extras)}

    @property
    def where(self) -> str:
        """Where it lies, for people."""
        return path_of(self.store, self.name)


class ChunkSources(OpenReaders[str]):
    """Gives the chunks of one target."""

    def __init__(self, target: RepairTarget, second: Store | None) -> None:
        super().__init__()
        self._target, self._second = target, second
        self._chunks = {name: stored_chunks(record) for name, record in target.records.items()}
        self._twins: dict[str, Mapping[Key, Sequence[_Twin]]] = {}
        self._elsewhere: OrderedDict[tuple[str, int], memoryview | None] = OrderedDict()
        self._rooms: dict[int, memoryview] = {}
        self.unreachable = ""  # why the second store could not be asked
        self._parity = ParityFiles(target.store, target.name, target.summary.parity_files, target.where)
        self._places = self._standing()

    def close(self) -> None:
        """Let go of every file."""
        self._parity.close()
        super().close()

    def chunks(self, file: str) -> Sequence[StoredChunk]:
        """The chunks of a file."""
        return self._chunks[file]

    def _standing(self) -> dict[str, ColumnPlace]:
        """Where each file stands in the columns of the parity; nowhere if that is of other files."""
        record = self._parity.record
        if record is None or record.attempt != self._target.summary.attempt:
            return {}
        found = places(record.columns)
        fits = {name: place.size for name, place in found.items()} == {
            name: record.size for name, record in self._target.records.items() if record.size
        }
        return found if fits else {}

    # --- the file itself ----------------------------------------------------------------------------------------------

    def on_disk(self, file: str, number: int) -> memoryview | None:
        """The chunk as it lies there, if it is what it should be.

        Raises:
            OSError: it could not be read here and now, which does not prove that it is damaged.
        """
        chunk = self._chunks[file][number]
        reader = self._reader(file)
        if reader.size < chunk.stop:
            return None
        data = memoryview(bytearray(chunk.stop - chunk.start))
        reader.read_into(chunk.start, data)
        return data if chunk.is_intact(data) else None

    def _reader(self, file: str) -> Reader:
        if file not in self._readers:
            self._readers[file] = self._target.store.open(self._target.name, file)
        return self._readers[file]

    def forget(self, file: str) -> None:
        """Open the file anew when it is asked for again: it was replaced."""
        reader = self._readers.pop(file, None)
        if reader is not None:
            reader.close()

    # --- all sources --------------------------------------------------------------------------------------------------

    def find(self, file: str, number: int) -> tuple[memoryview, str] | None:
        """A damaged chunk, and where it was found; None if it is lost."""
        chunk = self._chunks[file][number]
        found = self._from_twins(self._target.store, chunk)
        if found is not None:
            return found, TWIN
        found = self._from_parity(file, chunk)
        if found is not None and chunk.is_intact(found):
            return found, PARITY
        if self._second is not None:
            found = self._from_twins(self._second, chunk)
        return None if found is None or not chunk.is_intact(found) else (found, SECOND)

    # --- equal chunks elsewhere ---------------------------------------------------------------------------------------

    def _from_twins(self, store: Store, chunk: StoredChunk) -> memoryview | None:
        if store.url not in self._twins:
            self._twins[store.url] = self._look_into(store)
        for twin in self._twins[store.url].get(chunk.key, ()):
            data = _read_twin(twin)
            if data is not None and chunk.is_intact(data):
                return data
        return None

    def _look_into(self, store: Store) -> Mapping[Key, Sequence[_Twin]]:
        try:
            return _find_twins(store, self._wanted(), first=self._target.name)
        except CheckpointException as error:
            if store is self._target.store:
                raise
            log.warning("%s: the second store did not answer: %s", store.url, error)
            self.unreachable = str(error)
            return {}

    def _wanted(self) -> set[Key]:
        damaged = self._target.damaged
        return {self._chunks[file][number].key for file, numbers in damaged.items() for number in numbers}

    # --- parity -------------------------------------------------------------------------------------------------------

    def _from_parity(self, file: str, chunk: StoredChunk) -> memoryview | None:
        """The chunk from the sums and from what stands in the other columns; None if too much of that is gone."""
        place = self._places.get(file)
        if place is None:
            return None
        start, stop = place.start + chunk.start, place.start + chunk.stop
        parts = []
        for lower, upper in self._even_pieces(place.column, start, stop):
            part = self._lost_piece(place.column, lower, upper)
            if part is None:
                return None
            parts.append(part)
        return memoryview(b"".join(parts))

    def _even_pieces(self, column: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Cut ``[start, stop)`` into windows in each of which the same columns are damaged and one block counts."""
        record = self._parity.record
        if record is None:
            return
        step = math.gcd(record.block, _WINDOW)
        cuts = {start, stop, *range(start - start % step, stop, step)}
        for file, numbers in self._target.damaged.items():
            place = self._places.get(file)
            if place is None or place.column == column:
                continue
            for number in numbers:
                chunk = self._chunks[file][number]
                cuts |= {place.start + chunk.start, place.start + chunk.stop}
        cuts |= {edge for place in self._places.values() for edge in (place.start, place.start + place.size)}
        edges = sorted(cut for cut in cuts if start <= cut <= stop)
        yield from pairwise(edges)

    def _lost_piece(self, column: int, start: int, stop: int) -> memoryview | None:
        record = self._parity.record
        if record is None:
            return None
        columns: list[memoryview | None] = [None] * len(record.columns)
        for other in range(len(columns)):
            if other != column:
                columns[other] = self._piece(other, start, stop)
        try:
            p, q = self._parity.sum_of("p", start, stop), self._parity.sum_of("q", start, stop)
            return lost_columns(columns, p, q)[column]
        except TooManyLost:
            return None

    def _piece(self, column: int, start: int, stop: int) -> memoryview | None:
        """The bytes ``[start, stop)`` of a column, all of one file or behind the last; None if they are damaged."""
        for file, place in self._places.items():
            if place.column == column and place.start <= start < place.start + place.size:
                return self._file_piece(file, start - place.start, self._room(column, stop - start))
        return memoryview(bytes(stop - start))

    def _room(self, column: int, size: int) -> memoryview:
        """Memory for a piece of one column, good until the next piece."""
        if len(self._rooms.get(column, b"")) < size:
            self._rooms[column] = memoryview(bytearray(size))
        return self._rooms[column][:size]

    def _file_piece(self, file: str, start: int, room: memoryview) -> memoryview | None:
        """Fill ``room`` from a file, unless what stands there is damaged and cannot be had elsewhere."""
        for number in self._target.damaged.get(file, ()):
            chunk = self._chunks[file][number]
            if chunk.start <= start < chunk.stop:
                whole = self._found_elsewhere(file, number)
                return None if whole is None else whole[start - chunk.start : start - chunk.start + len(room)]
        try:
            self._reader(file).read_into(start, room)
        except (CheckpointException, OSError):
            return None
        return room

    def _found_elsewhere(self, file: str, number: int) -> memoryview | None:
        """A damaged chunk of another column that does not need parity itself."""
        if (file, number) not in self._elsewhere:
            chunk, stores = self._chunks[file][number], (self._target.store, self._second)
            found = (self._from_twins(store, chunk) for store in stores if store is not None)
            self._elsewhere[file, number] = next((one for one in found if one is not None), None)
            while len(self._elsewhere) > _REMEMBERED:
                self._elsewhere.popitem(last=False)
        return self._elsewhere[file, number]


def _read_twin(twin: _Twin) -> memoryview | None:
    try:
        reader = twin.store.open(twin.name, twin.file)
    except CheckpointException:
        return None
    try:
        data = memoryview(bytearray(twin.chunk.stop - twin.chunk.start))
        reader.read_into(twin.chunk.start, data)
    except (CheckpointException, OSError):
        return None
    finally:
        reader.close()
    return data


def _known_files(store: Store, name: str) -> Summary:
    """All files of a checkpoint whose chunks are known: not those of ranks, if a manifest of one is damaged."""
    raw = store.read_manifest(name)
    try:
        return read_summary(store, name, raw)
    except CheckpointException:
        return decode_summary(raw, path_of(store, name))


def _find_twins(store: Store, wanted: Collection[Key], *, first: str) -> dict[Key, list[_Twin]]:
    """Where in a root chunks of these digests are recorded; what lies under the name ``first`` comes first."""
    found: dict[Key, list[_Twin]] = defaultdict(list)
    names = sorted(store.entries(), key=lambda name: (name != first, name))
    for name in names:
        try:
            summary = _known_files(store, name)
            check_files((*summary.files, *summary.extras), path_of(store, name), ReaderLimits())
        except CheckpointException:
            continue  # no checkpoint, or none that says what its files are
        for record in (*summary.files, *summary.extras):
            for chunk in stored_chunks(record):
                if chunk.key in wanted:
                    found[chunk.key].append(_Twin(store, name, record.name, chunk))
    return found
