"""Record: gather what the workers found into the manifest, and the index of a consolidated model."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from model_checkpoint import format as data_format
from model_checkpoint import plan
from model_checkpoint.engine.order import Order
from model_checkpoint.engine.slabs import FileJob, write_files
from model_checkpoint.events import ignore
from model_checkpoint.manifest import Entry, FileRecord, Manifest, pack
from model_checkpoint.options import CompressionLevel
from model_checkpoint.state import Flat
from model_checkpoint.storage.store import Stage

INDEX_FILE = "model.safetensors.index.json"


def file_name(file: plan.FilePlan, index: int, attempt: str) -> str:
    """Name a data file; the attempt in it makes it unlike any file of another save."""
    return f"{file.part or 'r0'}-{index}-{attempt}.safetensors"


def compose(order: Order, flat: Flat, files: Sequence[plan.FilePlan], jobs: Sequence[FileJob]) -> Manifest:
    """Gather what the workers found into the record of the checkpoint."""
    entries: list[Entry | None] = [None] * len(flat.leaves)
    records = []
    for number, (file, job) in enumerate(zip(files, jobs, strict=True)):
        name = file_name(file, number, order.attempt)
        records.append(data_format.file_record(name, size=job.layout.size, ends=job.layout.ends, digests=job.digests))
        for place, chosen in enumerate(job.layout.order):
            leaf = flat.leaves[file.leaves[chosen]]
            entries[file.leaves[chosen]] = Entry(
                name=file.names[chosen],
                kind=leaf.kind,
                dtype=leaf.dtype,
                shape=leaf.shape,
                stored=leaf.stored,
                stored_shape=leaf.stored_shape,
                file=number,
                start=job.layout.starts[place],
                stop=job.layout.starts[place + 1],
                digest=job.content(place, order.limits.chunk_bytes),
                attributes=leaf.attributes,
            )
    return Manifest(
        id=uuid.uuid4().hex,
        attempt=order.attempt,
        name=order.name,
        step=order.step,
        created=datetime.now(UTC).isoformat(timespec="microseconds"),
        layout=order.layout.value,
        compression=CompressionLevel.NONE.value,
        metrics=pack(dict(order.metrics)),
        metadata=pack(dict(order.metadata)),
        tree=flat.tree,
        entries=tuple(entry for entry in entries if entry is not None),
        files=tuple(records),
    )


def write_index(stage: Stage, manifest: Manifest) -> FileRecord:
    """Write the index by which Hugging Face tools find the tensors of the model."""
    model = {i: record.name for i, record in enumerate(manifest.files) if record.name.startswith("model-")}
    weight_map = {entry.name: model[entry.file] for entry in manifest.entries if entry.file in model}
    total = sum(entry.nbytes for entry in manifest.entries if entry.file in model)
    data = msgspec.json.encode({"metadata": {"total_size": total}, "weight_map": weight_map})
    writer = stage.create(INDEX_FILE, len(data))
    job = FileJob(data_format.plain_layout(data), (), writer, writer.alignment)
    write_files([job], emit=ignore)
    return data_format.file_record(INDEX_FILE, size=len(data), ends=job.layout.ends, digests=job.digests)
