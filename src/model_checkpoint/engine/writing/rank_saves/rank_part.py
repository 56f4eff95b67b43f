"""Rank part: what one of many ranks writes of a state, to its own manifest, and what the checkpoint's says of all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from model_checkpoint.engine.writing.manifest_build import (
    features_of,
    file_record_of,
    manifest_of,
    write_plain,
)
from model_checkpoint.engine.writing.rank_saves.rank_plan import RankPlan
from model_checkpoint.engine.writing.request import SaveRequest
from model_checkpoint.engine.writing.save_plan import SavePlan
from model_checkpoint.engine.writing.slabs import FileJob
from model_checkpoint.errors import StorageFailure
from model_checkpoint.format.stored import tensor_bytes
from model_checkpoint.manifest import (
    RANKS,
    Entry,
    FileCopy,
    FileRecord,
    Manifest,
    Node,
    RankManifest,
    RankRecord,
    StoredPiece,
    encode_rank,
)
from model_checkpoint.plan.sharding.share_out import Share
from model_checkpoint.storage.contract.store import Attempt

PartRecord = dict[str, Any]


def write_part(
    stage: Attempt, planned: SavePlan, shares: Sequence[Share], move: Callable[[list[FileJob]], None]
) -> PartRecord:
    """Write the files and the manifest of one rank; return what the checkpoint's manifest will say of them."""
    order = planned.order
    for name, job in planned.named_jobs():
        job.writer = stage.create(name, job.layout.size)
        if not order.stem:  # else the parts are read once more, and go
            job.want_subchunks()
    move(planned.writing)
    wrote = planned.manifest(stage, created="")  # rank 0 will say when
    pieces = tuple([_piece(share, entry) for share, entry in zip(shares, wrote.entries, strict=True)])
    manifest = RankManifest(attempt=order.attempt, rank=order.rank, files=wrote.files, pieces=pieces)
    data, name = encode_rank(manifest), f"rank-{order.rank}-{order.attempt}.json"
    own = file_record_of(name, write_plain(stage, name, data))
    return {
        "name": name,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "record": msgspec.to_builtins(own),
        "files": [record.name for record in wrote.files],
        "copies": [_copy(record) for record in wrote.files],
        "compressed": any(record.frames for record in wrote.files),
        "parents": list(wrote.parents),
    }


def _piece(share: Share, entry: Entry) -> StoredPiece:
    return StoredPiece(
        entry=share.array,
        name=entry.name,
        offsets=share.box.offsets,
        shape=share.box.sizes,
        file=entry.file,
        start=entry.start,
        stop=entry.stop,
        digest=entry.digest,
    )


def _copy(record: FileRecord) -> list[Any]:
    return [record.size, record.raw_size, record.identity]


def require_files(stage: Attempt, votes: Sequence[PartRecord], where: str) -> None:
    """Look once more whether all that was voted for is there."""
    stamps = stage.stamps()
    for rank, vote in enumerate(votes):
        sizes = {vote["name"]: vote["size"]} | {
            name: copy[0] for name, copy in zip(vote["files"], vote["copies"], strict=True)
        }
        odd = [name for name, size in sizes.items() if name not in stamps or stamps[name].size != size]
        if odd:
            raise StorageFailure(
                f"{where}: rank {rank} wrote {odd[0]}, but rank 0 finds it missing or of another size. Check the "
                "file system that the ranks share.",
                where,
            )


def compose_ranks(
    order: SaveRequest, tree: Node, plan: RankPlan, votes: Sequence[PartRecord], *, created: str
) -> Manifest:
    """The manifest of the checkpoint; where bytes lie, those of the ranks say."""
    entries = [
        Entry(
            name=sign.name,
            kind=sign.kind,
            dtype=sign.dtype,
            shape=sign.shape,
            stored=sign.stored,
            stored_shape=sign.stored_shape,
            file=-1,
            start=0,
            stop=tensor_bytes(sign.stored, sign.shape if sign.stored_shape is None else sign.stored_shape) or 0,
            digest="",
            attributes=sign.attributes,
        )
        for sign in plan.signs
    ]
    ranks = tuple(
        RankRecord(v["name"], v["size"], v["sha256"], tuple(v["files"]), tuple(FileCopy(*copy) for copy in v["copies"]))
        for v in votes
    )
    return msgspec.structs.replace(
        manifest_of(order, tree, entries, created=created),
        features=(RANKS, *features_of(order, compressed=any(vote["compressed"] for vote in votes))),
        world_size=len(votes),
        parents=tuple(dict.fromkeys(parent for vote in votes for parent in vote["parents"])),
        layouts=tuple(plan.table.layouts),
        placed=tuple(plan.table.placed),
        ranks=ranks,
        extras=tuple(msgspec.convert(vote["record"], FileRecord) for vote in votes),
    )
