"""Slices: read a box out of one saved array, or a view of one, verifying exactly the chunks it touches."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from model_checkpoint import tree
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.engine.reading.gather_boxes import BoxGather
from model_checkpoint.engine.root.listing import load_manifest
from model_checkpoint.engine.root.refs import Reference, choose_one
from model_checkpoint.errors import WrongReference
from model_checkpoint.manifest import Entry, Manifest
from model_checkpoint.name_lists import did_you_mean
from model_checkpoint.options import LayoutLimits
from model_checkpoint.plan import Box, Index, Spans, box_of, parts_of
from model_checkpoint.tree.arrays.array_ref import c_strides
from model_checkpoint.tree.arrays.buffers import TEXTS, stored_form
from model_checkpoint.tree.nodes.walk import arrays
from model_checkpoint.tree.restoring.build import Builder

_CHUNK = LayoutLimits().chunk_bytes


def load_slice(
    root: Reference,
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
    """Load ``tensor[index]`` of a checkpoint, reading only the chunks that hold those elements.

    Example:
        >>> import model_checkpoint as mc, numpy as np
        >>> _ = mc.save("memory://doc-slice", {"w": np.arange(6).reshape(3, 2)}, step=1)
        >>> mc.load_slice("memory://doc-slice", "w", np.s_[1:, 0])
        array([2, 4])
    """
    store, found = choose_one(root, step=step, id=id, best=best, name=name)
    manifest = load_manifest(store, found.name)
    view = _view_of(manifest, tensor, path_of(store, found.name), framework)
    box = box_of(index, view.whole)
    with ChunkReader(store, manifest, full=False) as medium:
        medium.prepare(manifest.stored_of([view.number]))
        cells = _read_box(medium, manifest, view, box)
    saved = view.of_shape(box.shape)
    restore = tree.prepare(["a", 0], [saved], framework=framework, device=device)
    if saved.nbytes:
        restore.target(0).put(0, cells.reshape(-1).view(np.uint8).data)
    made = restore.finish()
    return made[0] if saved.kind in TEXTS and not box.shape else made


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """One saved tensor: which stored array it lies in, and where in it its elements are."""

    number: int  # of the stored array
    entry: Entry  # the stored array, with kind and dtype of the tensor
    itemsize: int  # of an element as the caller counts them
    tail: tuple[int, ...]  # what the stored shape of one element is; of a random key its numbers
    whole: Box

    def of_shape(self, shape: tuple[int, ...]) -> Entry:
        """A stored array of just the elements taken."""
        nbytes = prod(shape) * self.itemsize
        return msgspec.structs.replace(self.entry, shape=shape + self.tail, stored_shape=None, start=0, stop=nbytes)


def _view_of(manifest: Manifest, tensor: str, where: str, framework: str | None) -> _View:
    nodes = dict(arrays(manifest.tree))
    node = nodes.get(tensor)
    if node is None:
        hint = did_you_mean(tensor, nodes, "`mckpt show` lists its tensors.")
        raise WrongReference(f"{where}: no tensor {tensor!r} in it. {hint}", where)
    builder = Builder(manifest.entries, framework=framework)
    memory = builder.memory(node, tensor)
    if node[0] == "v":
        kind, _, shape, strides, offset = builder.geometry(node)
        entry = msgspec.structs.replace(memory.entry, kind=node[2], dtype=node[3])
        itemsize = stored_form(node[3], kind=kind, saved=node[2]).itemsize
        return _View(number=node[1], entry=entry, itemsize=itemsize, tail=(), whole=Box(offset, shape, strides))
    shape, itemsize = memory.entry.shape, memory.dtype.itemsize
    is_key = memory.kind == memory.entry.kind == "jax" and isinstance(memory.entry.attributes, list)
    tail = shape[-1:] if is_key else ()
    outer = shape[: len(shape) - len(tail)]
    item = itemsize * prod(tail)
    return _View(
        number=node[1], entry=memory.entry, itemsize=item, tail=tail, whole=Box(0, outer, c_strides(outer, item))
    )


def _read_box(medium: ChunkReader, manifest: Manifest, view: _View, box: Box) -> npt.NDArray[np.void]:
    """Read the stretches that hold the elements of a box, and cut the elements out of them."""
    cell = np.dtype((np.void, view.itemsize))
    cells = np.empty(box.shape, cell)
    parts = list(parts_of(box, _CHUNK)) if cells.nbytes else []
    spans = Spans([part.box.span(view.itemsize) for part in parts])
    gather, stretches = BoxGather.of_runs(manifest, view.number, spans.ranges)
    gather.run(medium)
    for at, inner in parts:
        number = spans.find(inner.span(view.itemsize)[0])
        first = inner.offset - spans.ranges[number][0]
        cells[at] = np.ndarray(inner.shape, cell, stretches[number].data, first, inner.strides)
    return cells
