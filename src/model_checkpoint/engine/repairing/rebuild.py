"""Rebuild: one damaged file again, whole, to a new file, each chunk by its SHA-256.

A file is put in place only if every chunk of it is right. Nothing is ever filled with zeros, or with anything but the
very bytes that were saved.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from model_checkpoint.engine.reading.chunk_reader import tensors_of_chunk
from model_checkpoint.engine.repairing.chunk_sources import ChunkSources, Patient
from model_checkpoint.engine.repairing.file_stream import FileStream
from model_checkpoint.engine.root.shared_files import identity_of
from model_checkpoint.errors import CheckpointException, CheckpointNotFound, CorruptedCheckpoint
from model_checkpoint.manifest import Entry
from model_checkpoint.storage.contract.store import Store


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


def survey(sources: ChunkSources, patient: Patient, file: str) -> None:
    """Note which chunks of a damaged file are not what they should be.

    Raises:
        OSError: the medium did not answer, which does not prove damage.
    """
    patient.damaged[file] = {n for n in range(len(sources.chunks(file))) if _is_gone(sources, file, n)}


def _is_gone(sources: ChunkSources, file: str, number: int) -> bool:
    try:
        return sources.on_disk(file, number) is None
    except CorruptedCheckpoint:
        return True  # the file is not there, or is no file


def rebuild(
    sources: ChunkSources, patient: Patient, file: str, entries: Sequence[Entry], *, dry_run: bool
) -> RepairedFile | list[LostChunk]:
    """Bring one damaged file back, as a new file that takes its place; or touch nothing and tell what is lost."""
    record, counts = patient.records[file], Counter[str]()
    mending = None if dry_run else patient.store.mend(patient.name, uuid.uuid4().hex)
    lost: list[LostChunk] = []
    try:
        stream = None if mending is None else FileStream(mending.create(file, record.size))
        for number in range(len(sources.chunks(file))):
            data = _chunk(sources, patient, file, number, counts)
            if data is None:
                lost.append(_lost(patient, file, number, entries))
            elif stream is not None and not lost:
                stream.write(data)
        if not lost and stream is not None and mending is not None:
            stream.close()
            before = identity_of(patient.store, patient.name, file)
            if not mending.finish(over=patient.raw):
                raise Superseded(
                    f"{patient.where}: was replaced or deleted while it was being repaired.", patient.where
                )
            sources.forget(file)
            patient.damaged.pop(file, None)
            shared = tuple(_share(patient, file, before)) if before else ()
            return RepairedFile(
                checkpoint=patient.name, file=file, nbytes=record.size, sources=dict(counts), shared_with=shared
            )
    finally:
        if mending is not None:
            mending.abort()
    return lost or RepairedFile(checkpoint=patient.name, file=file, nbytes=record.size, sources=dict(counts))


def _chunk(sources: ChunkSources, patient: Patient, file: str, number: int, counts: Counter[str]) -> memoryview | None:
    """One chunk, right by its SHA-256, from the file itself or from wherever it can be had."""
    if number not in patient.damaged[file]:
        data = sources.on_disk(file, number)
        if data is not None:
            return data
        patient.damaged[file].add(number)  # it was right a moment ago
    found = sources.find(file, number)
    if found is None:
        return None
    counts[found[1]] += 1
    return found[0]


def _lost(patient: Patient, file: str, number: int, entries: Sequence[Entry]) -> LostChunk:
    names, ends = [record.name for record in patient.summary.files], patient.records[file].ends
    index = names.index(file) if file in names else -1
    # without its header no tensor of a file can be read
    start, stop = (ends[number - 1], ends[number]) if number else (0, ends[-1])
    tensors = tuple(tensors_of_chunk(entries, index, start, stop))
    reason = "no other checkpoint, parity file or second store gives it back"
    return LostChunk(checkpoint=patient.name, file=file, chunk=number, tensors=tensors, reason=reason)


def _share(patient: Patient, file: str, before: str) -> list[str]:
    """Give the new copy to every other checkpoint that had the damaged one, and say which."""
    store, done = patient.store, []
    fresh = identity_of(store, patient.name, file)
    for other in sorted(store.entries()):
        for twin in _holding(store, other, before) if other != patient.name else ():
            mending = store.mend(other, uuid.uuid4().hex)
            try:
                raw = store.read_manifest(other)
                linked = mending.link(twin, source=patient.name, source_file=file, identity=fresh)
                if linked and mending.finish(over=raw):
                    done.append(other)
            except CheckpointNotFound:
                continue  # deleted meanwhile
            finally:
                mending.abort()
    return done


def _holding(store: Store, name: str, identity: str) -> list[str]:
    """The files of a checkpoint that are the copy ``identity``."""
    try:
        return [file for file, stamp in store.stamps(name).items() if stamp.identity == identity]
    except CheckpointException:
        return []
