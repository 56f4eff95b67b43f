"""Manifest build: gather what the workers found into the manifest, and the index of a consolidated model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from model_checkpoint import format as data_format
from model_checkpoint import plan
from model_checkpoint.engine.writing.incremental import LinkedFile, Parent
from model_checkpoint.engine.writing.request import SaveRequest
from model_checkpoint.engine.writing.slabs import FileJob, write_files
from model_checkpoint.events import ignore
from model_checkpoint.manifest import COMPRESSED, INCOMPLETE, Entry, FileRecord, Manifest, Node, pack
from model_checkpoint.state import Flat
from model_checkpoint.storage.contract.store import Attempt, FileStat

INDEX_FILE = "model.safetensors.index.json"


def file_name(file: plan.FilePlan, index: int, order: SaveRequest) -> str:
    """Name a data file; the attempt in it makes it unlike any file of another save."""
    return f"{file.part or order.stem or f'r{order.rank}'}-{index}-{order.attempt}.safetensors"


def compose(
    order: SaveRequest,
    flat: Flat,
    files: Sequence[plan.FilePlan],
    jobs: Sequence[FileJob | LinkedFile],
    *,
    stamps: Mapping[str, FileStat],
    parent: Parent | None,
    created: str,
) -> Manifest:
    """Gather what the workers found into the record of the checkpoint."""
    entries: list[Entry | None] = [None] * len(flat.leaves)
    records = []
    for number, (file, job) in enumerate(zip(files, jobs, strict=True)):
        name = file_name(file, number, order)
        records.append(msgspec.structs.replace(file_record_of(name, job), identity=stamps[name].identity))
        for chosen, start, stop, digest in _places(job, order.limits.chunk_bytes):
            leaf = flat.leaves[file.leaves[chosen]]
            entries[file.leaves[chosen]] = leaf.entry(
                name=file.names[chosen], file=number, start=start, stop=stop, digest=digest
            )
    linked = any(isinstance(job, LinkedFile) for job in jobs)
    return msgspec.structs.replace(
        manifest_of(order, flat.tree, [entry for entry in entries if entry is not None], created=created),
        features=features_of(order, compressed=any(record.frames for record in records)),
        files=tuple(records),
        parents=(parent.manifest.id,) if linked and parent is not None else (),
    )


def manifest_of(order: SaveRequest, tree: Node, entries: Sequence[Entry], *, created: str) -> Manifest:
    """What the request and the state alone tell of a checkpoint."""
    return Manifest(
        id=order.id,
        attempt=order.attempt,
        name=order.name,
        step=order.step,
        created=created,
        layout=order.layout.value,
        compression=order.compression.value,
        left_out=order.left_out,
        parity=order.parity,
        mirror="" if order.mirror is None else order.mirror.url,
        metrics=pack(dict(order.metrics)),
        metadata=pack(dict(order.metadata)),
        tree=tree,
        entries=tuple(entries),
    )


def features_of(order: SaveRequest, *, compressed: bool) -> tuple[str, ...]:
    """What a reader must know to read the checkpoint rightly."""
    return (*((COMPRESSED,) if compressed else ()), *((INCOMPLETE,) if order.left_out else ()))


def _places(job: FileJob | LinkedFile, chunk_bytes: int) -> Iterator[tuple[int, int, int, str]]:
    """Where each tensor of a file lies: its number in the file's plan, start, stop, and content digest."""
    if isinstance(job, LinkedFile):
        for chosen, entry in enumerate(job.entries):
            yield chosen, entry.start, entry.stop, entry.digest
        return
    for place, chosen in enumerate(job.layout.order):
        yield chosen, job.layout.starts[place], job.layout.starts[place + 1], job.content(place, chunk_bytes)


def file_record_of(name: str, job: FileJob | LinkedFile) -> FileRecord:
    """What the manifest says of a file that was written or linked."""
    if isinstance(job, LinkedFile):
        return msgspec.structs.replace(job.record, name=name)
    frames = () if job.compressor is None else job.compressor.frames
    record = data_format.file_record(
        name, size=job.size, ends=job.layout.ends, digests=job.digests, frames=frames, subchunks=job.subchunks
    )
    return msgspec.structs.replace(record, verified=int(time.time()))


def write_index(stage: Attempt, manifest: Manifest) -> FileRecord:
    """Write the index by which Hugging Face tools find the tensors of the model."""
    model = {i: record.name for i, record in enumerate(manifest.files) if record.name.startswith("model-")}
    weight_map = {entry.name: model[entry.file] for entry in manifest.entries if entry.file in model}
    total = sum(entry.nbytes for entry in manifest.entries if entry.file in model)
    data = msgspec.json.encode({"metadata": {"total_size": total}, "weight_map": weight_map})
    return file_record_of(INDEX_FILE, write_plain(stage, INDEX_FILE, data))


def write_plain(stage: Attempt, name: str, data: bytes) -> FileJob:
    """Write a file that is no safetensors."""
    job = FileJob(data_format.plain_layout(data), ())
    job.writer = stage.create(name, len(data))
    write_files([job], emit=ignore)
    return job
