"""Reuse: which files of an earlier checkpoint an incremental save may repeat, and how the rest is cut.

A file is repeated only whole, when every tensor in it is unchanged, so no checkpoint ever holds a stale tensor. What is
frozen or did not change since the parent goes into files of its own: they are the ones to repeat next time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from model_checkpoint.manifest import Entry, Manifest
from model_checkpoint.options import CheckpointFormat, LayoutLimits
from model_checkpoint.plan.assign import FilePlan, cut, parts_of
from model_checkpoint.state import Leaf


def comparable(leaves: Sequence[Leaf], layout: CheckpointFormat, parent: Manifest) -> dict[int, int]:
    """The leaves that may be unchanged, and the entry of ``parent`` each is to be compared with."""
    known = {(part_of(parent, entry.file), entry.name): i for i, entry in enumerate(parent.entries)}
    pairs = {
        leaf: known.get((part.part, name))
        for part in parts_of(leaves, layout)
        for leaf, name in zip(part.leaves, part.names, strict=True)
    }
    return {
        leaf: entry
        for leaf, entry in pairs.items()
        if entry is not None and _alike(leaves[leaf], parent.entries[entry])
    }


def part_of(manifest: Manifest, file: int) -> str:
    """Which part of a consolidated checkpoint a file belongs to."""
    return "model" if manifest.files[file].name.startswith("model-") else ""


def _alike(leaf: Leaf, entry: Entry) -> bool:
    return (leaf.dtype, leaf.shape, leaf.stored, leaf.stored_shape, leaf.nbytes) == (
        entry.dtype,
        entry.shape,
        entry.stored,
        entry.stored_shape,
        entry.nbytes,
    )


def reassign(
    leaves: Sequence[Leaf],
    layout: CheckpointFormat,
    limits: LayoutLimits,
    *,
    unchanged: Mapping[int, int],
    parent: Manifest | None,
    usable: Collection[int],
) -> list[FilePlan]:
    """Spread ``leaves`` over files, repeating ``usable`` files of ``parent`` that are unchanged as a whole.

    ``unchanged`` gives, for each leaf with the same content as in the parent, the parent's entry.
    """
    repeated = list(_repeated(unchanged, parent, usable)) if parent is not None else []
    done = {leaf for file in repeated for leaf in file.leaves}
    fresh: list[FilePlan] = []
    for part in parts_of(leaves, layout):
        settled = [i in unchanged or leaves[i].frozen for i in part.leaves]
        for wanted in (True, False):
            chosen = [k for k, i in enumerate(part.leaves) if i not in done and settled[k] is wanted]
            kind = FilePlan(part.part, [part.leaves[k] for k in chosen], [part.names[k] for k in chosen])
            fresh.extend(cut(kind, leaves, limits))
    return [*repeated, *fresh]


def _repeated(unchanged: Mapping[int, int], parent: Manifest, usable: Collection[int]) -> Iterator[FilePlan]:
    leaf_of = {entry: leaf for leaf, entry in unchanged.items()}
    held: dict[int, list[int]] = {}
    for number, entry in enumerate(parent.entries):
        held.setdefault(entry.file, []).append(number)
    for file, numbers in held.items():
        if file in usable and all(number in leaf_of for number in numbers):
            names = [parent.entries[number].name for number in numbers]
            yield FilePlan(part_of(parent, file), [leaf_of[number] for number in numbers], names, repeats=file)
