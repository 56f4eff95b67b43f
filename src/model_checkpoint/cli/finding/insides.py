"""Insides: where in its data a run was, and how a state lies on ranks, told by a manifest; no array byte is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint.engine.root.listing import load_manifest
from model_checkpoint.engine.root.refs import Reference, choose_one
from model_checkpoint.manifest import Layout, Manifest, unpack
from model_checkpoint.tree.values.plain import plain_values

_PLACE = ("step", "epoch", "batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPosition:
    """Where a ``mc.Run`` was, and whether a resume repeats an unbroken run bit for bit."""

    step: int
    epoch: int
    batch: int  # consumed in that epoch
    exact: bool
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """What one rank wrote."""

    rank: int
    files: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutLine:
    """How some tensors lie on the ranks, in words."""

    mesh: Sequence[int]
    mesh_names: Sequence[str]
    placements: Sequence[str]  # one for each dimension of the mesh
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Insides:
    """What a manifest tells beside parts and tensors."""

    run: RunPosition | None
    ranks: Sequence[RankShare]
    layouts: Sequence[LayoutLine]


def look_inside(ref: Reference) -> Insides:
    """Read the manifest of one checkpoint.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-insides", {"a": 1}, step=1)
        >>> look_inside("memory://doc-insides").run is None
        True
    """
    store, found = choose_one(ref)
    manifest = load_manifest(store, found.name)
    return Insides(run=_position(manifest), ranks=_shares(manifest), layouts=_layouts(manifest))


def _position(manifest: Manifest) -> RunPosition | None:
    values = plain_values(manifest.tree)
    place = [values.get(f"run.place.{word}") for word in _PLACE]
    if not all(isinstance(number, int) for number in place):
        return None
    told: list[tuple[str, Any]] = [(name, node) for name, node in values.items() if name.startswith("run.reasons.")]
    reasons = tuple(str(unpack(node)) for _, node in told)
    step, epoch, batch = (int(number) for number in place if isinstance(number, int))
    return RunPosition(step=step, epoch=epoch, batch=batch, exact=not reasons, reasons=reasons)


def _shares(manifest: Manifest) -> tuple[RankShare, ...]:
    return tuple(
        RankShare(rank=number, files=len(rank.files), nbytes=sum(copy.size for copy in rank.copies))
        for number, rank in enumerate(manifest.ranks)
    )


def _layouts(manifest: Manifest) -> tuple[LayoutLine, ...]:
    used: Mapping[int, int] = Counter(manifest.placed)
    return tuple(
        LayoutLine(
            mesh=layout.mesh, mesh_names=layout.names, placements=placements_of(layout), tensors=used.get(number, 0)
        )
        for number, layout in enumerate(manifest.layouts)
        if used.get(number, 0)
    )


def placements_of(layout: Layout) -> tuple[str, ...]:
    """What each dimension of the mesh does to an array, in words.

    Example:
        >>> from model_checkpoint.manifest import Layout, Placement
        >>> placements_of(Layout(mesh=(2, 2), ranks=(0, 1, 2, 3), placements=(Placement(), Placement(dim=1))))
        ('same on all', 'cut along 1')
    """
    if layout.regions:
        return (f"{len(layout.regions)} boxes",)
    return tuple(
        "same on all" if one.replicated else f"cut along {one.dim}{f' ({one.split} before)' if one.split else ''}"
        for one in layout.placements
    )
