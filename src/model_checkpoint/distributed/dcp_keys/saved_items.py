"""Saved items: what a checkpoint holds, in the words of DCP: keys, and what lies under each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from model_checkpoint import tree
from model_checkpoint.distributed.dcp_keys.key_paths import KeyPath
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.engine.reading.deliver import deliver
from model_checkpoint.engine.reading.gather_boxes import NOTHING_HELD
from model_checkpoint.engine.root.listing import load_manifest
from model_checkpoint.errors import StructureMismatch
from model_checkpoint.events import ignore
from model_checkpoint.manifest import Manifest, Node, decode, unpack
from model_checkpoint.state import Spec
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.tree.arrays.torch_arrays import torch_dtype
from model_checkpoint.tree.nodes.per_rank import RankView, view_of
from model_checkpoint.tree.nodes.walk import MAPPINGS

FLAT_KEYS = "dcp_flat_keys"  # in the metadata of a checkpoint whose keys are no paths


@dataclass(frozen=True, slots=True)
class SavedItems:
    """The keys of one checkpoint as one rank sees them."""

    manifest: Manifest
    nodes: Mapping[str, Node]
    paths: Mapping[str, KeyPath]
    tensors: Mapping[str, Spec]  # the keys under which a torch tensor lies
    undecided: frozenset[str]  # keys under which each rank that saved had something of its own

    def metadata(self, checkpoint_id: str) -> Metadata:
        """The same as DCP wants it told: each tensor in one piece, since how it was cut is not its business."""
        told: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
        for fqn in self.nodes:
            spec = self.tensors.get(fqn)
            told[fqn] = BytesStorageMetadata() if spec is None else _tensor(spec)
        return Metadata(told, dict(self.paths), {}, StorageMeta(checkpoint_id=checkpoint_id))

    def require_decided(self, keys: set[str]) -> None:
        """Raise for keys that nobody can tell the value of."""
        odd = sorted(self.undecided & keys)
        if odd:
            raise StructureMismatch(
                f"{', '.join(odd[:8])}: the {self.manifest.world_size} ranks that saved have values of their own "
                "there, and now there are others, so nobody knows whose this rank is to take. Pass StorageReader(..., "
                "per_rank=) a rank of the save, or leave these keys out of the state. Nothing was changed."
            )


def _tensor(spec: Spec) -> TensorStorageMetadata:
    size = torch.Size(spec.shape)
    chunk = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
    return TensorStorageMetadata(TensorProperties(dtype=torch_dtype(spec.dtype)), size, [chunk])


def saved_items(store: Store, name: str, *, rank: int, world_size: int, per_rank: int | None) -> SavedItems:
    """Read what a checkpoint holds; where ranks had values of their own, those of ``per_rank``, or of this rank."""
    manifest = load_manifest(store, name)
    flat = bool((unpack(manifest.metadata) or {}).get(FLAT_KEYS))
    found = dict(_items(manifest.tree, manifest, flat))
    undecided: set[str] = set()
    if manifest.ranks:
        raw, saved = decode(store.read_manifest(name), name).tree, manifest.world_size
        common = view_of(raw, saved, RankView(world_size=-1, wanted=lambda _: False))
        own = view_of(raw, saved, RankView(rank, world_size, source=per_rank, wanted=lambda _: False))
        known = dict(_items(common, manifest, flat)) | dict(_items(own, manifest, flat))
        undecided = found.keys() - known.keys()
        found |= known
    nodes = {fqn: node for fqn, (_, node) in found.items()}
    keys = [fqn for fqn, node in nodes.items() if _is_tensor(node, manifest) and fqn not in undecided]
    specs = tree.specs(["l", [nodes[fqn] for fqn in keys]], manifest.entries)
    paths = {fqn: path for fqn, (path, _) in found.items()}
    return SavedItems(manifest, nodes, paths, dict(zip(keys, specs, strict=True)), frozenset(undecided))


def read_values(medium: ChunkReader, manifest: Manifest, nodes: Mapping[str, Node]) -> dict[str, Any]:
    """The values under some keys, the arrays in them read whole."""
    made = ["d", [half for key, node in nodes.items() for half in (key, node)]]
    medium.prepare(manifest.stored_of(tree.entries_in(made, manifest.entries)))
    restore = tree.prepare(made, manifest.entries)
    deliver(medium, manifest, restore, list(restore.needed), mapped=False, check=True, emit=ignore, boxes=NOTHING_HELD)
    values: dict[str, Any] = restore.finish()
    return values


def _items(node: Node, manifest: Manifest, flat: bool) -> Iterator[tuple[str, tuple[KeyPath, Node]]]:
    """Each key of a tree with its path and what lies there, as DCP flattens a state."""
    for path, below in _leaves(node, (), manifest, flat):
        yield ".".join(map(str, path)), (path, below)


def _leaves(node: Node, path: KeyPath, manifest: Manifest, flat: bool) -> Iterator[tuple[KeyPath, Node]]:
    if path and (flat or not _is_open(node, manifest)):
        yield path, node
        return
    for key, below in _children(node):
        yield from _leaves(below, (*path, key), manifest, flat)


def _is_open(node: Node, manifest: Manifest) -> bool:
    """Whether DCP looks into a container: always into a mapping, into a list only if it finds tensors there."""
    match node:
        case [("d" | "k" | "o" | "m"), *_]:
            return True
        case ["l", list(items)]:
            return any(_is_open(item, manifest) or _is_tensor(item, manifest) for item in items)
    return False


def _children(node: Any) -> list[tuple[str | int, Node]]:
    match node:
        case [str(tag), list(flat), *_] if tag in MAPPINGS:
            return [(key if isinstance(key, str) else str(unpack(key)), item) for key, item in _pairs(flat)]
        case ["m", str(), str(), inner, *_]:
            return _children(inner)
        case ["l", list(items)]:
            return list(enumerate(items))
    return []


def _pairs(flat: list[Any]) -> Iterator[tuple[Node, Node]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _is_tensor(node: Node, manifest: Manifest) -> bool:
    match node:
        case ["a", int(number), *_]:
            return 0 <= number < len(manifest.entries) and manifest.entries[number].kind == "torch"
        case ["v", int(), str(kind), *_]:
            return kind == "torch"
    return False
