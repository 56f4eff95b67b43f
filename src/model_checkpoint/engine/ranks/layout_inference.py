"""Readings: how a strided layout is meant, decided by what all ranks really hold.

FSDP2 on top of tensor parallelism cuts the part of a rank once more; the spec it writes, read from the left as it is
meant to be, tells of other rows where sizes do not divide. Both readings are computed, and the one that fits the local
shapes of all ranks is taken; a layout that fits neither is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from model_checkpoint.errors import StructureMismatch
from model_checkpoint.manifest import Layout
from model_checkpoint.plan.sharding.holders import local_shape

Laid = tuple[tuple[int, ...], Layout, Sequence[tuple[int, ...]]]  # shape of the whole, layout, shapes of what is here


def reading_key(shape: tuple[int, ...], layout: Layout) -> str:
    """What all ranks call an array of this shape and layout."""
    return msgspec.json.encode([shape, layout.mesh, layout.placements, layout.ranks]).decode()


def misfits(laid: Iterable[Laid], rank: int) -> dict[str, list[str]]:
    """Which layouts are not as the spec says, and which not as FSDP2 cuts, by what this rank holds."""
    found: dict[str, set[str]] = {"spec": set(), "nested": set()}
    alike = {(shape, id(layout), tuple(map(tuple, shapes))): (shape, layout, shapes) for shape, layout, shapes in laid}
    for shape, layout, shapes in alike.values():
        if layout.regions or not layout.placements or rank not in layout.ranks:
            continue
        strided = any(placement.split for placement in layout.placements)
        for name in ("spec", "nested") if strided else ("spec",):
            read = msgspec.structs.replace(layout, nested=name == "nested")
            if local_shape(shape, read, rank) != tuple(shapes[0]):
                found[name].add(reading_key(shape, layout))
                if not strided:
                    found["nested"].add(reading_key(shape, layout))
    return {name: sorted(keys) for name, keys in found.items()}


def agreed(words: Sequence[dict[str, Any]]) -> list[str]:
    """The layouts that are to be read as FSDP2 cuts; raise for one that no reading fits on all ranks."""
    spec = {key for word in words for key in word["misfits"]["spec"]}
    nested = {key for word in words for key in word["misfits"]["nested"]}
    if spec & nested:
        key = min(spec & nested)
        ranks = [i for i, w in enumerate(words) if key in (*w["misfits"]["spec"], *w["misfits"]["nested"])]
        raise StructureMismatch(
            f"a tensor laid out as {key[:300]} (shape, mesh, placements) is on ranks {ranks[:8]} of another shape than "
            "its placements say, however they are read, so nobody knows which rows those are. Redistribute it before "
            "saving, or mark the parts with Shard(...)."
        )
    return sorted(spec)


def read_as(shape: tuple[int, ...], layout: Layout, nested: Iterable[str]) -> Layout:
    """The layout in the reading that was agreed on."""
    chosen = set(nested)
    if not chosen or layout.regions or reading_key(shape, layout) not in chosen:
        return layout
    return msgspec.structs.replace(layout, nested=True)
