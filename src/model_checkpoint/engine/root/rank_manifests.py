"""Rank manifests: what many ranks wrote, joined to the manifest of their checkpoint so that it reads like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeVar

import msgspec

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.common.workers import Pace, run_all
from model_checkpoint.errors import LayoutInvalid, Truncated
from model_checkpoint.manifest import (
    Entry,
    FileRecord,
    JoinedManifest,
    Manifest,
    RankManifest,
    RankRecord,
    StoredPiece,
    Summary,
    decode,
    decode_rank,
    decode_summary,
)
from model_checkpoint.options import ReaderLimits
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.plan.sharding.tiling import covers, tiles
from model_checkpoint.storage.contract.store import Store

T = TypeVar("T")

Wanted = Mapping[int, Sequence[ArrayBox]]  # boxes of arrays, by their numbers

_READERS = 8
_FEW = 8  # manifests are sooner all read than chosen from
_MOST = ReaderLimits().manifest_bytes


def join_ranks(store: Store, manifest: Manifest, wanted: Wanted | None = None) -> Manifest:
    """The manifest with those of its ranks; unchanged if one process wrote it.

    If only some boxes of some arrays are ``wanted``, by their numbers, only what holds them is read and joined.
    """
    if not manifest.ranks:
        return manifest
    where = path_of(store, manifest.name)
    files: list[FileRecord] = []
    found: dict[int, list[tuple[tuple[int, ...], Entry]]] = {}
    beside: list[Entry] = []  # nobody wants these, but they stand in the headers of files that are read
    boxes = None if wanted is None else _WantedBoxes(wanted)
    for rank in _read_all(store, manifest, _needed(manifest, wanted), where):
        chosen = [boxes is None or boxes.touch(piece) for piece in rank.pieces]
        opened = {piece.file for piece, good in zip(rank.pieces, chosen, strict=True) if good}
        for piece, good in zip(rank.pieces, chosen, strict=True):
            if piece.file in opened:
                entry = piece_entry(manifest.entries, piece, len(files), where)
                found.setdefault(piece.entry, []).append((piece.offsets, entry)) if good else beside.append(entry)
        files += rank.files
    entries, pieces = list(manifest.entries), dict[int, tuple[tuple[tuple[int, ...], int], ...]]()
    for number in range(len(entries)) if wanted is None else wanted:
        whole, rows = manifest.entries[number], found.get(number, [])
        held = tuple(ArrayBox(offsets, entry.shape) for offsets, entry in rows)
        if not (tiles(whole.shape, held) if boxes is None else boxes.are_met(number, held)):
            raise _broken(where, whole.name)
        if len(rows) == 1 and rows[0][1].shape == whole.shape:  # an array in one piece is an entry like any other
            entries[number] = msgspec.structs.replace(rows[0][1], attributes=whole.attributes)
            continue
        pieces[number] = tuple((offsets, len(entries) + i) for i, (offsets, _) in enumerate(rows))
        entries += [entry for _, entry in rows]
    fields = {field: getattr(manifest, field) for field in Manifest.__struct_fields__}
    return JoinedManifest(**fields | {"entries": (*entries, *beside), "files": tuple(files), "pieces": pieces})


class _WantedBoxes:
    """Which boxes of arrays are wanted. What was found of one array holds for the many that lie and are cut like it."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._touched: dict[tuple[int, ArrayBox], bool] = {}
        self._met: dict[tuple[int, tuple[ArrayBox, ...]], bool] = {}

    def touch(self, piece: StoredPiece) -> bool:
        """Whether something of a stored piece is wanted."""
        boxes = self._wanted.get(piece.entry)
        if boxes is None:
            return False
        own = ArrayBox(piece.offsets, piece.shape)
        key = (id(boxes), own)
        if key not in self._touched:
            self._touched[key] = any(len(box.sizes) == len(own.sizes) and box.common(own) is not None for box in boxes)
        return self._touched[key]

    def are_met(self, number: int, held: tuple[ArrayBox, ...]) -> bool:
        """Whether stored pieces hold each element that is wanted of an array once."""
        boxes = self._wanted[number]
        key = (id(boxes), held)
        if key not in self._met:
            self._met[key] = all(covers(box, held) for box in boxes)
        return self._met[key]


def pieces_of(manifest: Manifest, index: int) -> Sequence[tuple[tuple[int, ...], int]]:
    """Where in the array each piece begins, and the number of its entry."""
    return manifest.pieces.get(index) or [((0,) * len(manifest.entries[index].shape), index)]


def _needed(manifest: Manifest, wanted: Wanted | None) -> Sequence[RankRecord]:
    """The ranks whose manifests are read: all of a few, else those that can have written what is wanted."""
    if wanted is None or len(manifest.ranks) <= _FEW or len(manifest.placed) != len(manifest.entries):
        return manifest.ranks
    from model_checkpoint.plan.sharding.share_out import PlannedArray  # brings NumPy
    from model_checkpoint.plan.sharding.writers import writers

    arrays = [
        PlannedArray(entry.shape, max(1, entry.nbytes // max(1, prod(entry.shape))), layout)
        for entry, layout in zip(manifest.entries, manifest.placed, strict=True)
    ]
    return [manifest.ranks[rank] for rank in sorted(writers(arrays, manifest.layouts, wanted))]


def read_summary(store: Store, name: str, raw: bytes) -> Summary:
    """What a manifest says of all files of its checkpoint, those that many ranks wrote included."""
    where = path_of(store, name)
    summary = decode_summary(raw, where)
    if not summary.ranks:
        return summary
    return join_ranks(store, msgspec.structs.replace(decode(raw, where), name=name))


def rank_files_only(summary: Summary) -> Summary:
    """The same, where the data files of ranks have a size and nothing else: all there is without their manifests."""
    known = [
        FileRecord(name=name, size=copy.size, ends=(), sha256="", xxh3="", digest="")
        for rank in summary.ranks
        for name, copy in zip(rank.files, rank.copies, strict=True)
    ]
    return msgspec.structs.replace(summary, files=tuple(known))


def _read_all(store: Store, manifest: Manifest, ranks: Sequence[RankRecord], where: str) -> list[RankManifest]:
    found: dict[str, RankManifest] = {}

    def worker(records: object) -> None:
        for record in records:  # type: ignore[attr-defined]
            found[record.name] = read_rank(store, manifest, record, where)

    run_all(worker, ranks, pace=Pace(most=_READERS))
    return [found[record.name] for record in ranks]


def read_rank(store: Store, manifest: Manifest, record: RankRecord, where: str) -> RankManifest:
    """The manifest of one rank, as the checkpoint's manifest knows it."""
    data = _read(store, manifest.name, record, where)
    return decode_rank(data, f"{where}/{record.name}", sha256=record.sha256, attempt=manifest.attempt)


def _read(store: Store, name: str, record: RankRecord, where: str) -> bytes:
    reader = store.open(name, record.name)
    try:
        if reader.size != record.size or record.size > _MOST:
            raise Truncated(
                f"{where}/{record.name}: has {reader.size} bytes, the manifest says {record.size}. "
                "Load an older step, or pass fallback=True.",
                where,
                file=record.name,
            )
        data = bytearray(record.size)
        reader.read_into(0, memoryview(data))
        return bytes(data)
    finally:
        reader.close()


def piece_entry(entries: Sequence[Entry], piece: StoredPiece, files: int, where: str) -> Entry:
    """The entry of one piece: like its array's, but for its shape and place."""
    if not 0 <= piece.entry < len(entries) or len(piece.shape) != len(entries[piece.entry].shape):
        raise _broken(where, piece.name)
    whole = entries[piece.entry]
    return Entry(
        name=piece.name,
        kind=whole.kind,
        dtype=whole.dtype,
        shape=piece.shape,
        stored=whole.stored,
        stored_shape=piece_stored_shape(whole.shape, whole.stored_shape, piece.shape),
        file=files + piece.file,
        start=piece.start,
        stop=piece.stop,
        digest=piece.digest,
    )


def piece_stored_shape(
    shape: tuple[int, ...], stored: tuple[int, ...] | None, sizes: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The shape in a data file of a box of an array that is stored in another shape than its own."""
    if stored is None:
        return None
    if len(stored) > len(shape):
        return sizes + stored[len(shape) :]
    return (*sizes[:-1], sizes[-1] * 2)


def _broken(where: str, tensor: str) -> LayoutInvalid:
    return LayoutInvalid(
        f"{where}: the pieces of tensor {tensor[:80]!r} do not make up the whole. The manifests of its ranks are "
        "damaged or of another save; load another step.",
        where,
        tensor=tensor[:200],
    )
