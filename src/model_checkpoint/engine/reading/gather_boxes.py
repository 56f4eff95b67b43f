"""Gather boxes: carry verified bytes of arrays that were saved in pieces, or are wanted in parts, to their places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.reading.chunks.chunk_reader import PlaceChunk, TakeChunk
from model_checkpoint.engine.root.rank_manifests import pieces_of
from model_checkpoint.errors import StructureMismatch
from model_checkpoint.manifest import Entry, Layout, Manifest
from model_checkpoint.performance.copying import stream_copy
from model_checkpoint.plan import ChunkRead, plan_reads
from model_checkpoint.plan import Piece as StoredRun
from model_checkpoint.plan.sharding.holders import HeldBox, held_boxes
from model_checkpoint.plan.sharding.regions import ArrayBox, byte_runs, run_boxes, whole
from model_checkpoint.state import ShardTarget, Target

Cells = npt.NDArray[np.uint8]
Boxes = Callable[[tuple[int, ...], Layout], Sequence[HeldBox]]  # what this rank holds of an array of a shape and layout


class ChunkMedium(Protocol):
    """What gives chunks; see :meth:`ChunkReader.read_chunks`."""

    def read_chunks(self, reads: Sequence[ChunkRead], place: PlaceChunk, take: TakeChunk) -> None:
        """Read and verify; ``take`` is called with each chunk that matched."""
        ...


_Cut = tuple[ArrayBox | None, Sequence[tuple[int, int]], bool]  # see _common_runs
NOTHING_HELD: Boxes = lambda shape, layout: ()  # noqa: E731  # for loads of whole arrays
_SMALL = 1 << 16  # below this a plain slice copy beats a call that lets go of the GIL
_GAP = 1 << 18  # bytes between two runs that are cheaper read than left out
_SHARED = 1.25  # times what is wanted: who must read more than that has ranks beside it that want the rest


class _Wanted(NamedTuple):
    """A box of an array, and where it goes: the bytes of another array, and where in that the box begins."""

    box: ArrayBox
    room: memoryview
    shape: tuple[int, ...]
    local: tuple[int, ...]
    item: int  # bytes of an element

    def cells(self) -> Cells:
        """The memory of the box, with one more dimension for the bytes of an element."""
        shape = (*self.shape, self.item)
        made = np.frombuffer(self.room, np.uint8).reshape(shape) if len(self.room) else np.empty(shape, np.uint8)
        cells: Cells = made[ArrayBox(self.local, self.box.sizes).slices()]
        return cells


class _Scattered(NamedTuple):
    """A box of an array, and the memory it goes to element by element."""

    box: ArrayBox
    cells: Cells


class _ByteRun(NamedTuple):
    """Bytes ``[start, stop)`` of a piece that lie in one row where they are wanted, too."""

    start: int
    stop: int
    room: memoryview


class _ScatteredPiece(NamedTuple):
    """What of one stored piece goes where."""

    shape: tuple[int, ...]  # of its bytes
    offsets: tuple[int, ...]  # in the array, as bytes
    wanted: Sequence[_Scattered]
    runs: Sequence[_ByteRun]  # what is copied as it lies


def begun_at(reads: Sequence[ChunkRead], share: float) -> list[ChunkRead]:
    """The same reads from another one on: of ranks that want the same, each brings others into the page cache."""
    first = int(len(reads) * share)
    return [*reads[first:], *reads[:first]]


class BoxGather:
    """All arrays of one load that are gathered box by box; ``touched`` are the live ones that have begun to change.

    ``shared`` are its reads if much of them is wanted by others. Such ones begin at ``begin``, a share of them all.
    """

    def __init__(
        self,
        manifest: Manifest,
        targets: Mapping[int, Target | ShardTarget],
        boxes: Boxes,
        *,
        begin: float = 0.0,
        whole: bool = False,
        subchunks: bool = False,
    ) -> None:
        self._whole = whole
        self._wanted_bytes = 0
        self.touched: set[int] = set()
        self._pieces: dict[int, _ScatteredPiece] = {}
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        self._finishing: list[Callable[[], None]] = []
        self._owner: dict[int, int] = {}
        self._cuts: dict[tuple[Any, ...], _Cut] = {}  # the many arrays of a state have few shapes, and are cut alike
        self._live = {index for index, target in targets.items() if target.live}
        for index, target in targets.items():
            self._plan(manifest, index, manifest.entries[index], self._wanted(manifest.entries[index], target, boxes))
        reads = plan_reads(self._pieces, manifest.entries, manifest.files, ranges=self._ranges, subchunks=subchunks)
        self.nbytes = sum(read.stop - read.start for read in reads)
        self.shared: Sequence[ChunkRead] = begun_at(reads, begin) if self.nbytes > _SHARED * self._wanted_bytes else ()
        self._reads = self.shared or reads

    @classmethod
    def of_runs(cls, manifest: Manifest, index: int, runs: Sequence[tuple[int, int]]) -> tuple[BoxGather, list[Cells]]:
        """Runs of bytes of one array, each into fresh memory; they may begin and end within an element."""
        made, entry = cls(manifest, {}, NOTHING_HELD), manifest.entries[index]
        item = entry.nbytes // max(1, prod(entry.shape))
        wanted, found = [], []
        for start, stop in runs:
            first, end = start // item, -(-stop // item)
            room, at = np.empty((end - first) * item, np.uint8), 0
            for box in run_boxes(entry.shape, first, end):
                inner = room[at : at + box.elements * item].data
                wanted.append(_Wanted(box, inner, box.sizes, (0,) * len(box.sizes), item))
                at += box.elements * item
            found.append(room[start - first * item : stop - first * item])
        made._plan(manifest, index, entry, wanted)
        made._reads = plan_reads(made._pieces, manifest.entries, manifest.files, ranges=made._ranges)
        return made, found

    def run(
        self,
        medium: ChunkMedium,
        meter: Meter | None = None,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Bring what is wanted of each array to its place; what goes to a device at last goes within ``guard``."""

        def take(read: ChunkRead, data: memoryview) -> None:
            self._take(read, data)
            if meter is not None:
                meter.add(read.stop - read.start)

        medium.read_chunks(self._reads, lambda _: None, take)
        for finish in self._finishing:
            with guard():
                finish()

    def _wanted(self, entry: Entry, target: Target | ShardTarget, boxes: Boxes) -> list[_Wanted]:
        item = entry.nbytes // max(1, prod(entry.shape))
        if isinstance(target, ShardTarget):
            return _held(entry, target, boxes(entry.shape, target.layout), item)
        buffer = target.buffer
        if buffer is None:  # memory of a device: gathered on the host first
            staging = np.empty(entry.nbytes, np.uint8)
            self._finishing.append(lambda: target.put(0, staging.data))
            buffer = staging.data
        everything = whole(entry.shape)
        return [_Wanted(everything, buffer, entry.shape, everything.offsets, item)] if entry.nbytes else []

    def _plan(self, manifest: Manifest, index: int, entry: Entry, wanted: Sequence[_Wanted]) -> None:
        item = entry.nbytes // max(1, prod(entry.shape))
        for offsets, number in pieces_of(manifest, index):
            piece = manifest.entries[number]
            scattered, straight, spans = list[_Scattered](), list[_ByteRun](), list[tuple[int, int]]()
            for one in wanted:
                key = (one.box, offsets, piece.shape, item)
                if key not in self._cuts:
                    self._cuts[key] = _common_runs(*key)
                common, found, dense = self._cuts[key]
                if common is None:
                    continue
                self._wanted_bytes += common.elements * item
                room = _straight(one, common) if dense else None
                spans += found
                if room is None:
                    scattered.append(_Scattered(one.box, one.cells()))
                else:
                    straight.append(_ByteRun(*found[0], room))
            if spans:
                self._pieces[number] = _ScatteredPiece((*piece.shape, item), (*offsets, 0), scattered, straight)
                self._ranges[number] = [(0, piece.nbytes)] if self._whole else _merged(spans)
                self._owner[number] = index

    def _take(self, read: ChunkRead, data: memoryview) -> None:
        """Distribute one verified chunk."""
        for stored in read.pieces:
            piece, index = self._pieces[stored.entry], self._owner[stored.entry]
            if index in self._live:
                self.touched.add(index)
            for run in piece.runs:
                _copy(run, stored, data)
            if not piece.wanted:
                continue
            source = np.frombuffer(data, np.uint8)[stored.start : stored.start + stored.length]
            at = 0
            for part in run_boxes(piece.shape, stored.into, stored.into + stored.length):
                count = part.elements
                _scatter(piece, part, source[at : at + count].reshape(part.sizes))
                at += count


def _common_runs(box: ArrayBox, offsets: tuple[int, ...], shape: tuple[int, ...], item: int) -> _Cut:
    """What a box and a stored piece have in common, which bytes of the piece hold it, and whether they hold no more."""
    common = box.common(ArrayBox(offsets, shape))
    if common is None:
        return None, (), False
    runs = byte_runs(common.within(offsets), shape, item, gap=_GAP)
    return common, runs, len(runs) == 1 and runs[0][1] - runs[0][0] == common.elements * item


def _straight(wanted: _Wanted, box: ArrayBox) -> memoryview | None:
    """Where a box goes, if its bytes lie there in one row."""
    if box == wanted.box and box.sizes == wanted.shape:
        return wanted.room
    cells = wanted.cells()[box.within(wanted.box.offsets).slices()]
    return cells.reshape(-1).data if cells.flags.c_contiguous else None


def _copy(run: _ByteRun, stored: StoredRun, data: memoryview) -> None:
    """Copy what a chunk has of a run."""
    lower, upper = max(run.start, stored.into), min(run.stop, stored.into + stored.length)
    if lower >= upper:
        return
    source = data[stored.start + lower - stored.into : stored.start + upper - stored.into]
    room = run.room[lower - run.start : upper - run.start]
    if len(source) < _SMALL:
        room[:] = source
    else:
        stream_copy(room, source)


def _scatter(piece: _ScatteredPiece, part: ArrayBox, cells: Cells) -> None:
    """Copy the bytes of a box of a piece to whoever wants some of them."""
    here = ArrayBox(tuple(map(int.__add__, part.offsets, piece.offsets)), part.sizes)
    for wanted in piece.wanted:
        box = ArrayBox((*wanted.box.offsets, 0), (*wanted.box.sizes, piece.shape[-1]))
        common = here.common(box)
        if common is not None:
            inner = cells[common.within(here.offsets).slices()]
            np.copyto(wanted.cells[common.within(box.offsets).slices()], inner)


def _held(entry: Entry, target: ShardTarget, held: Sequence[HeldBox], item: int) -> list[_Wanted]:
    """The boxes this rank holds, each with its place in the rank's own memory."""
    if sum(one.box.elements for one in held) * item != sum(map(len, target.buffers)):
        raise StructureMismatch(
            f"{entry.name}: what this rank holds of it has {[list(shape) for shape in target.shapes]} elements, which "
            f"is not what its layout says of an array of {list(entry.shape)}. Nothing was changed."
        )
    return [_Wanted(one.box, target.buffers[one.part], target.shapes[one.part], one.local, item) for one in held]


def _merged(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs in order, those that touch or overlap as one, so that no chunk delivers a byte twice."""
    made: list[tuple[int, int]] = []
    for start, stop in sorted(runs):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(stop, made[-1][1]))
        else:
            made.append((start, stop))
    return made


def local_boxes(rank: int, read: Callable[[tuple[int, ...], Layout], Layout]) -> Boxes:
    """What a rank holds of arrays; ``read`` says how their layouts are meant."""
    known: dict[tuple[tuple[int, ...], int], tuple[Layout, Sequence[HeldBox]]] = {}  # most arrays share one layout

    def boxes(shape: tuple[int, ...], layout: Layout) -> Sequence[HeldBox]:
        key = (shape, id(layout))
        if key not in known:
            known[key] = (layout, held(shape, layout))
        return known[key][1]

    def held(shape: tuple[int, ...], layout: Layout) -> Sequence[HeldBox]:
        if layout.regions and not layout.regions[0].ranks:  # marked by this rank itself
            offsets, sizes = layout.regions[0].offsets, layout.regions[0].sizes
            return [HeldBox(ArrayBox(offsets, sizes), (0,) * len(shape))]
        return held_boxes(shape, read(shape, layout), rank)

    return boxes


def wanted_boxes(
    manifest: Manifest, needed: Iterable[int], layouts: Mapping[int, Layout], rank: int
) -> dict[int, list[ArrayBox]]:
    """The boxes a rank wants of each array it needs; of a strided layout those of both ways to read it."""
    known: dict[tuple[tuple[int, ...], int], list[ArrayBox]] = {}
    made = {}
    for number in needed:
        shape, layout = manifest.entries[number].shape, layouts.get(number)
        key = (shape, id(layout))
        if key not in known:
            known[key] = [whole(shape)] if layout is None else _either_way(shape, layout, rank)
        made[number] = known[key]
    return made


def _either_way(shape: tuple[int, ...], layout: Layout, rank: int) -> list[ArrayBox]:
    strided = any(placement.split for placement in layout.placements)
    readings = [msgspec.structs.replace(layout, nested=nested) for nested in (False, True)] if strided else [layout]
    return [held.box for read in readings for held in local_boxes(rank, lambda _, one: one)(shape, read)]
