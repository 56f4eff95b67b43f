"""Describe: what is in a checkpoint, and what a resume from it would lack; no array byte is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from model_checkpoint import tree
from model_checkpoint.engine.common.info import CheckpointInfo, info_of, path_of
from model_checkpoint.engine.root.backend_files import files_of_backend
from model_checkpoint.engine.root.listing import load_manifest, read_any_manifest, scan, tell_shares
from model_checkpoint.engine.root.marks import tell_marks
from model_checkpoint.engine.root.protection import tell_protection
from model_checkpoint.engine.root.refs import Reference, choose_one
from model_checkpoint.manifest import OPAQUE, Manifest, Placement
from model_checkpoint.notebook_html import html_table
from model_checkpoint.storage.contract.store import Store


class TensorLine(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of a checkpoint; tied tensors each have a line, their bytes are stored once."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    layout: int | None = None  # how it lay on many ranks, in the description's list


class RankLine(msgspec.Struct, frozen=True, kw_only=True):
    """What one of many ranks wrote."""

    rank: int
    files: tuple[str, ...]  # its data files
    nbytes: int  # of those, as stored


class LayoutLine(msgspec.Struct, frozen=True, kw_only=True):
    """How tensors lay on many ranks."""

    mesh: tuple[int, ...]  # empty for parts that were marked one by one
    names: tuple[str, ...]  # of the mesh's dimensions, where they have some
    placements: tuple[str, ...]  # of each dimension of the mesh: Shard(0), Replicate()
    ranks: tuple[int, ...]
    tensors: int  # how many lay so


class BackendFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a storage backend wrote."""

    name: str  # in the folder of the checkpoint
    path: str  # as the backend called it
    nbytes: int
    digest: str  # SHA-256 over the digests of its chunks


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The parts, tensors and gaps of one checkpoint; of what a backend wrote, only who it was and which files."""

    info: CheckpointInfo
    parts: Sequence[tree.PartSummary]
    tensors: Sequence[TensorLine]
    lacking: Sequence[str]
    ranks: Sequence[RankLine] = ()  # if many ranks wrote files of their own
    layouts: Sequence[LayoutLine] = ()  # if many ranks saved it
    backend: str = ""  # who wrote it, if not the engine itself; nobody else knows what is inside
    files: Sequence[BackendFile] = ()  # of that backend
    unshared: Sequence[str] = ()  # views that shared memory and are stored apart, since together they cover too little

    def _repr_html_(self) -> str:
        """How a notebook shows it: parts, tensors, and what a resume would lack."""
        rows: list[tuple[object, ...]] = [
            *((part.name, part.class_name or part.kind, f"{part.tensors} tensors", part.nbytes) for part in self.parts),
            *((line.name, line.dtype, list(line.shape), line.nbytes) for line in self.tensors),
            *((file.name, f"of {self.backend}", "", file.nbytes) for file in self.files),
        ]
        gaps = [f"a resume would lack: {', '.join(self.lacking)}"] if self.lacking else []
        return html_table(self.info.path, ["", "kind", "shape", "bytes"], rows, remarks=gaps)


def describe(ref: Reference) -> Description:
    """Describe a checkpoint named by a root (its newest), ``root@step``, ``root@best:metric`` or an info.

    Of one that a storage backend wrote (``.pt``, safetensors, your own) it tells which backend that was and its files.

    Example:
        >>> import model_checkpoint as mc, numpy as np
        >>> _ = mc.save("memory://doc-describe", {"model": {"w": np.zeros((2, 3), np.float32)}}, step=1)
        >>> [(t.name, t.shape) for t in mc.describe("memory://doc-describe").tensors]
        [('model.w', (2, 3))]
    """
    store, found = choose_one(ref)
    manifest = read_any_manifest(store, found.name)
    return _of_backend(store, manifest) if OPAQUE in manifest.features else _of_state(store, manifest)


def describe_state(ref: Reference) -> Description:
    """Describe a checkpoint whose tensors are asked for.

    Raises:
        WrittenByBackend: only the backend that wrote it knows them.
    """
    store, found = choose_one(ref)
    return _of_state(store, load_manifest(store, found.name))


def _of_backend(store: Store, manifest: Manifest) -> Description:
    """Who wrote it, and which files there are to open."""
    inside = files_of_backend(manifest, path_of(store, manifest.name))
    files = [
        BackendFile(name=one.name, path=inside.paths[one.name], nbytes=one.size, digest=one.digest)
        for one in manifest.extras
    ]
    return Description(
        info=_info(store, manifest), parts=(), tensors=(), lacking=(), backend=inside.backend, files=files
    )


def _info(store: Store, manifest: Manifest) -> CheckpointInfo:
    told = tell_protection(store, [info_of(store, manifest)], {manifest.name: manifest})
    (info,) = tell_marks(store, tell_shares(store, told, scan(store)))
    return info


def _of_state(store: Store, manifest: Manifest) -> Description:
    # behind as many as have a layout come their pieces, which no tree names
    entries = manifest.entries[: len(manifest.placed) or None]
    summary = tree.summary(manifest.tree, entries)
    lines = []
    for spec in tree.specs(manifest.tree, entries):
        lines.append(
            TensorLine(
                name=spec.name,
                dtype=spec.dtype,
                shape=spec.shape,
                nbytes=tree.nbytes_of(spec, entries[spec.entry]),
                layout=manifest.placed[spec.entry] if manifest.placed else None,
            )
        )
    known = {"step"} if manifest.step is not None else set()
    lacking = tuple(what for what in summary.absent if what not in known)
    return Description(
        info=_info(store, manifest),
        parts=summary.parts,
        tensors=lines,
        lacking=lacking,
        ranks=[
            RankLine(rank=number, files=one.files, nbytes=sum(copy.size for copy in one.copies))
            for number, one in enumerate(manifest.ranks)
        ],
        layouts=_layouts(manifest),
        unshared=_unshared(manifest),
    )


def _layouts(manifest: Manifest) -> list[LayoutLine]:
    counts = Counter(manifest.placed)
    return [
        LayoutLine(
            mesh=layout.mesh,
            names=layout.names,
            placements=tuple(map(_placement, layout.placements)),
            ranks=layout.ranks or tuple(sorted({rank for region in layout.regions for rank in region.ranks})),
            tensors=counts[number],
        )
        for number, layout in enumerate(manifest.layouts)
    ]


def _placement(placement: Placement) -> str:
    if placement.replicated:
        return "Replicate()"
    return f"Shard({placement.dim})" if not placement.split else f"StridedShard({placement.dim}, {placement.split})"


def _unshared(manifest: Manifest) -> tuple[str, ...]:
    specs = tree.specs(manifest.tree, manifest.entries)
    return tuple(spec.name for spec in specs if manifest.entries[spec.entry].attributes == "apart")
