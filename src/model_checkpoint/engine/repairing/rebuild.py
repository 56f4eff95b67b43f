"""Rebuild: one damaged file again, whole, to a new file, each chunk by its SHA-256.

A file is put in place only if every chunk of it is right. Nothing is ever filled with zeros, or with anything but the
very bytes that were saved.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from model_checkpoint.engine.reading.chunks.chunk_reader import tensors_of_chunk
from model_checkpoint.engine.repairing.chunk_sources import ChunkSources, RepairTarget
from model_checkpoint.engine.repairing.file_stream import FileStream
from model_checkpoint.engine.root.rank_manifests import read_summary
from model_checkpoint.engine.root.shared_files import identity_of
from model_checkpoint.errors import CheckpointException, CorruptedCheckpoint
from model_checkpoint.manifest import Entry


class Superseded(CheckpointException):
    """The checkpoint under repair is no longer the one that was judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostChunk:
    """Bytes that nothing gives back, and the tensors that need them."""

    checkpoint: str
    file: str
    chunk: int | None
    tensors: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedFile:
    """A file that is whole again, or would be."""

    checkpoint: str
    file: str
    nbytes: int
    sources: dict[str, int] = field(hash=False)  # where its damaged chunks came from, and how many
    shared_with: tuple[str, ...] = ()  # other checkpoints that got the same new copy


def survey(sources: ChunkSources, target: RepairTarget, file: str) -> None:
    """Note which chunks of a damaged file are not what they should be.

    Raises:
        OSError: the medium did not answer, which does not prove damage.
    """
    target.damaged[file] = {n for n in range(len(sources.chunks(file))) if _is_gone(sources, file, n)}


def _is_gone(sources: ChunkSources, file: str, number: int) -> bool:
    try:
        return sources.on_disk(file, number) is None
    except CorruptedCheckpoint:
        return True  # the file is not there, or is no file


def rebuild(
    sources: ChunkSources,
    target: RepairTarget,
    file: str,
    entries: Sequence[Entry],
    advance: Callable[[int], None],
    *,
    dry_run: bool,
) -> RepairedFile | list[LostChunk]:
    """Bring one damaged file back, as a new file that takes its place; or touch nothing and tell what is lost.

    ``advance`` is told of the bytes as they are gathered.
    """
    record, counts = target.records[file], Counter[str]()
    shared: tuple[str, ...] = ()
    if dry_run:
        lost = _gather(sources, target, file, counts, advance)
    else:
        lost, shared = _replace(sources, target, file, counts, advance)
    if lost:
        return [_lost(target, file, number, entries, sources.unreachable) for number in lost]
    return RepairedFile(checkpoint=target.name, file=file, nbytes=record.size, sources=dict(counts), shared_with=shared)


def _replace(
    sources: ChunkSources, target: RepairTarget, file: str, counts: Counter[str], advance: Callable[[int], None]
) -> tuple[list[int], tuple[str, ...]]:
    """Write the file anew and put it in its place; return the chunks that are lost, and who else got the new copy."""
    store, mending = target.store, target.store.mend(target.name, uuid.uuid4().hex)
    try:
        stream = FileStream(mending.create(file, target.records[file].size))
        lost = _gather(sources, target, file, counts, advance, stream=stream)
        if lost:
            return lost, ()
        stream.close()
        before = identity_of(store, target.name, file)
        if not mending.finish(over=target.raw):
            raise Superseded(f"{target.where}: was replaced or deleted while it was being repaired.", target.where)
    finally:
        mending.abort()
    sources.forget(file)
    target.damaged.pop(file, None)
    return [], _share(target, file, before) if before else ()


def _gather(
    sources: ChunkSources,
    target: RepairTarget,
    file: str,
    counts: Counter[str],
    advance: Callable[[int], None],
    *,
    stream: FileStream | None = None,
) -> list[int]:
    """Fetch every chunk of a file and hand it on as long as none is missing; return the numbers of the lost ones."""
    lost: list[int] = []
    for number, chunk in enumerate(sources.chunks(file)):
        data = _chunk(sources, target, file, number, counts)
        advance(chunk.stop - chunk.start)
        if data is None:
            lost.append(number)
        elif stream is not None and not lost:
            stream.write(data)
    return lost


def _chunk(
    sources: ChunkSources, target: RepairTarget, file: str, number: int, counts: Counter[str]
) -> memoryview | None:
    """One chunk, right by its SHA-256, from the file itself or from wherever it can be had."""
    if number not in target.damaged[file]:
        data = sources.on_disk(file, number)
        if data is not None:
            return data
        target.damaged[file].add(number)  # it was right a moment ago
    found = sources.find(file, number)
    if found is None:
        return None
    counts[found[1]] += 1
    return found[0]


def _lost(target: RepairTarget, file: str, number: int, entries: Sequence[Entry], unreachable: str) -> LostChunk:
    names, ends = [record.name for record in target.summary.files], target.records[file].ends
    index = names.index(file) if file in names else -1
    # without its header no tensor of a file can be read
    start, stop = (ends[number - 1], ends[number]) if number else (0, ends[-1])
    tensors = tuple(tensors_of_chunk(entries, index, start, stop))
    reason = "no other checkpoint, parity file or second store gives it back"
    if unreachable:
        reason = f"no other checkpoint or parity file gives it back, and the second store did not answer: {unreachable}"
    return LostChunk(checkpoint=target.name, file=file, chunk=number, tensors=tensors, reason=reason)


def _share(target: RepairTarget, file: str, before: str) -> tuple[str, ...]:
    """Give the new copy to every other checkpoint that had the damaged one, and say which."""
    others = sorted({*target.store.entries()} - {target.name})
    return tuple(other for other in others if _share_with(target, file, before, other))


def _share_with(target: RepairTarget, file: str, before: str, other: str) -> bool:
    """Whether ``other`` had the copy ``before`` of a file that should be the very same, and has the new one now."""
    store, record = target.store, target.records[file]
    try:
        held = {name for name, stamp in store.stamps(other).items() if stamp.identity == before}
        raw = store.read_manifest(other) if held else b""
        summary = read_summary(store, other, raw) if held else None
    except CheckpointException:
        return False  # no checkpoint, or one whose manifest must be repaired first
    twins = [one for one in summary.files if one.name in held and one.digest == record.digest] if summary else []
    if not twins:
        return False
    fresh = identity_of(store, target.name, file)
    mending = store.mend(other, uuid.uuid4().hex)
    try:
        links = [mending.link(one.name, source=target.name, source_file=file, identity=fresh) for one in twins]
        return all(links) and mending.finish(over=raw)
    finally:
        mending.abort()
