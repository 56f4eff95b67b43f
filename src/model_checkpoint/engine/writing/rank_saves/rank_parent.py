"""Rank parent: the checkpoint that ranks build on together, of which each may repeat only its own files."""

from __future__ import annotations

import logging

import msgspec

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.root.listing import by_age
from model_checkpoint.engine.root.rank_manifests import piece_entry, read_rank
from model_checkpoint.engine.writing.incremental import Parent
from model_checkpoint.engine.writing.rank_saves.rank_plan import RankPlan
from model_checkpoint.errors import CheckpointException
from model_checkpoint.format import check_entries, check_files
from model_checkpoint.manifest import Entry, Manifest, decode
from model_checkpoint.options import ReaderLimits
from model_checkpoint.storage.contract.store import Store

log = logging.getLogger("model_checkpoint.save")

_UNLIKE = "%unlike"  # no tensor is called so


def parent_name(store: Store) -> str:
    """The newest checkpoint that many ranks wrote; empty if there is none. Rank 0 chooses for all."""
    for found in by_age(store):
        if found.summary is not None and found.summary.world_size > 1 and found.complete:
            return found.name
    return ""


def rank_parent(store: Store, name: str, plan: RankPlan, rank: int) -> Parent | None:
    """What ``rank`` wrote of that checkpoint, as something to build on; None if that cannot be used."""
    where = path_of(store, name)
    try:
        manifest = decode(store.read_manifest(name), where)
        if rank >= len(manifest.ranks):
            return None
        own = read_rank(store, manifest, manifest.ranks[rank], where)
        check_files(own.files, where, ReaderLimits())
        mine = {
            (plan.signs[share.array].name, piece.name, share.box.offsets, share.box.sizes)
            for share, piece in zip(plan.shares, plan.pieces, strict=True)
        }
        entries = []
        for number, piece in enumerate(own.pieces):
            entry = piece_entry(manifest.entries, piece, 0, where)
            same = (manifest.entries[piece.entry].name, piece.name, piece.offsets, piece.shape) in mine
            entries.append(entry if same else msgspec.structs.replace(entry, name=f"{_UNLIKE}{number}"))
        check_entries(entries, own.files, where, ReaderLimits())
    except CheckpointException as error:
        log.warning("%s: cannot be built on by rank %d: %s", where, rank, error)
        return None
    fields = {field: getattr(manifest, field) for field in Manifest.__struct_fields__}
    alike = Manifest(**fields | {"entries": tuple(entries), "files": own.files, "ranks": ()})
    by_file: dict[int, list[Entry]] = {}
    for entry in entries:
        by_file.setdefault(entry.file, []).append(entry)
    return Parent(name, alike, by_file)
