"""Slices: read a box out of one saved array, verifying exactly the chunks it touches."""

from __future__ import annotations

from difflib import get_close_matches
from math import prod
from typing import Any

import msgspec
import numpy as np

from model_checkpoint import tree
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.reading.chunk_reader import ChunkReader
from model_checkpoint.engine.root.listing import candidates, load_manifest
from model_checkpoint.errors import CheckpointNotFound
from model_checkpoint.manifest import Entry, Manifest
from model_checkpoint.plan import ChunkRead, Index, box_of, plan_reads
from model_checkpoint.storage.locate import Root, open_store


def load_slice(
    root: Root,
    tensor: str,
    index: Index,
    *,
    step: int | None = None,
    id: str | None = None,  # the name users know
    best: str | None = None,
    name: str | None = None,
    framework: str | None = None,
    device: Any = None,
) -> Any:
    """Load ``tensor[index]`` of a checkpoint, reading only the chunks that hold those rows.

    Example:
        >>> import model_checkpoint as mc, numpy as np
        >>> _ = mc.save("memory://doc-slice", {"w": np.arange(6).reshape(3, 2)}, step=1)
        >>> mc.load_slice("memory://doc-slice", "w", np.s_[1:, 0])
        array([2, 4])
    """
    store = open_store(root)
    found = candidates(store, step=step, id=id, best=best, name=name)[0]
    if found.error is not None:
        raise found.error
    where = path_of(store, found.name)
    manifest = load_manifest(store, found.name)
    number = _entry_of(manifest, tensor, where)
    entry = manifest.entries[number]
    with ChunkReader(store, manifest, full=False) as medium:
        medium.prepare([entry])
        box, data = _read_box(medium, manifest, number, index)
    small = msgspec.structs.replace(entry, shape=box, stored_shape=None, start=0, stop=len(data))
    restore = tree.prepare(["a", 0], [small], framework=framework, device=device)
    if len(data):
        target = restore.target(0)
        target.put(0, data)
    return restore.finish()


def _entry_of(manifest: Manifest, tensor: str, where: str) -> int:
    specs = {spec.name: spec for spec in tree.specs(manifest.tree, manifest.entries)}
    spec = specs.get(tensor)
    if spec is None:
        near = get_close_matches(tensor, list(specs), n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "`mckpt show` lists its tensors."
        raise CheckpointNotFound(f"{where}: no tensor {tensor!r} in it. {hint}", where)
    if spec.shape != manifest.entries[spec.entry].shape:
        raise IndexError(f"{where}: {tensor!r} is a view of a larger storage; load it whole with parts={tensor!r}")
    return spec.entry


def _read_box(medium: ChunkReader, manifest: Manifest, number: int, index: Index) -> tuple[tuple[int, ...], memoryview]:
    """Read the rows of a box and cut the box out of them."""
    entry: Entry = manifest.entries[number]
    count = prod(entry.shape)
    itemsize = entry.nbytes // count if count else 1
    box = box_of(index, entry.shape, itemsize)
    rows = np.empty(box.stop - box.start if count else 0, dtype=np.uint8)
    span = (box.start, box.start + len(rows))
    reads = plan_reads([number], manifest.entries, manifest.files, ranges={number: [span]})

    def take(read: ChunkRead, data: memoryview) -> None:
        for piece in read.pieces:
            part = np.frombuffer(data, dtype=np.uint8)[piece.start : piece.start + piece.length]
            rows[piece.into - box.start : piece.into - box.start + piece.length] = part

    medium.read_chunks(reads, lambda read: None, take)
    if not count:
        return box.shape, memoryview(b"")
    cells = rows.view(f"V{itemsize}").reshape(box.rows)
    return box.shape, memoryview(np.ascontiguousarray(cells[box.inner]).tobytes())
