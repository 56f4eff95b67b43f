"""Assign: cut a list of leaves into data files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from model_checkpoint.options import CheckpointFormat, LayoutLimits
from model_checkpoint.state import Leaf

_HEADER_ROW = 96  # bytes a header row takes beside the name, at most, for ranks up to four
_HEADER_SIDE = 21  # and for each further side of a shape

MODEL_PART = "model."


@dataclass(frozen=True, slots=True)
class FilePlan:
    """Which leaves one data file holds, and under which names."""

    part: str  # "" or "model" for files of a consolidated model
    leaves: Sequence[int]
    names: Sequence[str]


def assign(leaves: Sequence[Leaf], layout: CheckpointFormat, limits: LayoutLimits) -> list[FilePlan]:
    """Spread ``leaves`` over files, in order, within the limits of one file.

    A single file is never cut. Consolidated, the leaves of ``model`` go first, under their own names, into files of
    their own.
    """
    if layout is CheckpointFormat.SINGLE_FILE:
        return [FilePlan("", range(len(leaves)), [leaf.name for leaf in leaves])]
    if layout is CheckpointFormat.MULTI_SHARD:
        return list(_cut("", range(len(leaves)), [leaf.name for leaf in leaves], leaves, limits))
    model = [i for i, leaf in enumerate(leaves) if leaf.name.startswith(MODEL_PART)]
    rest = [i for i, leaf in enumerate(leaves) if not leaf.name.startswith(MODEL_PART)]
    stripped = [leaves[i].name.removeprefix(MODEL_PART) for i in model]
    return [
        *_cut("model", model, stripped, leaves, limits),
        *_cut("", rest, [leaves[i].name for i in rest], leaves, limits),
    ]


def _cut(
    part: str, indices: Iterable[int], names: Sequence[str], leaves: Sequence[Leaf], limits: LayoutLimits
) -> Iterator[FilePlan]:
    """Close a file before it would pass one of the limits; a larger tensor gets a file of its own."""
    chosen: list[int] = []
    labels: list[str] = []
    size = header = 0
    for index, name in zip(indices, names, strict=True):
        leaf = leaves[index]
        row = len(name) * 2 + _HEADER_ROW + _HEADER_SIDE * max(0, len(leaf.shape) - 4)
        full = len(chosen) >= limits.file_tensors or header + row > limits.header_bytes
        if chosen and (full or size + leaf.nbytes > limits.file_bytes):
            yield FilePlan(part, chosen, labels)
            chosen, labels, size, header = [], [], 0, 0
        chosen.append(index)
        labels.append(name)
        size += leaf.nbytes
        header += row
    if chosen:
        yield FilePlan(part, chosen, labels)
