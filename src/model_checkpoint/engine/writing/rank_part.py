"""Rank part: what one of many ranks writes of a state, from its share of the arrays to its own manifest."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from model_checkpoint.engine.ranks.pooling import ArraySign, Pool
from model_checkpoint.engine.root.rank_manifests import piece_stored_shape
from model_checkpoint.engine.writing.box_source import BoxSource
from model_checkpoint.engine.writing.manifest_build import compose, write_plain
from model_checkpoint.engine.writing.request import SaveRequest
from model_checkpoint.engine.writing.save_plan import plan_flat
from model_checkpoint.engine.writing.slabs import write_files
from model_checkpoint.errors import StorageFailure
from model_checkpoint.events import Emit
from model_checkpoint.format.stored import tensor_bytes
from model_checkpoint.manifest import (
    COMPRESSED,
    RANKS,
    Entry,
    FileCopy,
    FileRecord,
    Layout,
    Manifest,
    RankManifest,
    RankRecord,
    StoredPiece,
    encode_rank,
    pack,
)
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.plan.sharding.share_out import PlannedArray, Share, share_out
from model_checkpoint.state import Flat, Leaf, LocalArray
from model_checkpoint.storage.contract.store import Attempt, Store

PartRecord = dict[str, Any]


class LayoutTable:
    """The layouts of all arrays of a pool, each once, and the number of each array's."""

    def __init__(self, signs: Sequence[ArraySign]) -> None:
        self.layouts: list[Layout] = []
        self.placed: list[int] = []
        by_id: dict[int, int] = {}
        by_value: dict[Layout, int] = {}
        for sign in signs:
            layout = sign.layout or Layout()
            number = by_id.get(id(layout))  # most arrays share one object: comparing the ranks of a mesh takes long
            if number is None:
                number = by_id[id(layout)] = by_value.setdefault(layout, len(self.layouts))
                if number == len(self.layouts):
                    self.layouts.append(layout)
            self.placed.append(number)


def element_bytes(sign: ArraySign) -> int:
    """Bytes of one element of an array as it is stored."""
    elements = ArrayBox((), sign.shape).elements
    nbytes = tensor_bytes(sign.stored, sign.shape if sign.stored_shape is None else sign.stored_shape)
    return nbytes // elements if nbytes and elements else 1


def shares_of(pool: Pool, table: LayoutTable, rank: int) -> list[Share]:
    """What a rank writes."""
    arrays = [
        PlannedArray(sign.shape, element_bytes(sign), layout)
        for sign, layout in zip(pool.signs, table.placed, strict=True)
    ]
    return share_out(arrays, table.layouts, rank)


def piece_leaves(pool: Pool, shares: Sequence[Share], own: Mapping[int, int], leaves: Sequence[Leaf]) -> list[Leaf]:
    """The boxes a rank writes as leaves of their own; the first of an array has its name."""
    made: list[Leaf] = []
    counts: Counter[int] = Counter()
    for share in shares:
        sign, leaf = pool.signs[share.array], leaves[own[share.array]]
        item = element_bytes(sign)
        part = _local(leaf, share.part)
        suffix = f"%p{counts[share.array]}" if counts[share.array] else ""
        counts[share.array] += 1
        source = BoxSource(part.source, part.shape, item, ArrayBox(share.local, share.box.sizes))
        stored = piece_stored_shape(sign.shape, sign.stored_shape, share.box.sizes)
        made.append(
            leaf._replace(
                name=sign.name + suffix, shape=share.box.sizes, stored_shape=stored, source=source, sharding=None
            )
        )
    return made


def _local(leaf: Leaf, part: int) -> LocalArray:
    if leaf.sharding is None:
        return LocalArray(leaf.shape, leaf.source)
    return leaf.sharding.arrays[part]


def write_part(
    store: Store, stage: Attempt, order: SaveRequest, leaves: Sequence[Leaf], shares: Sequence[Share], *, emit: Emit
) -> PartRecord:
    """Write the files and the manifest of one rank; return what the checkpoint's manifest will say of them."""
    planned = plan_flat(store, order, Flat(None, leaves))
    for name, job in planned.named_jobs():
        job.writer = stage.create(name, job.layout.size)
    write_files(planned.writing, emit=emit)
    wrote = compose(order, planned.flat, planned.files, planned.jobs, stamps=stage.stamps(), parent=None)
    pieces = tuple(_piece(share, entry) for share, entry in zip(shares, wrote.entries, strict=True))
    manifest = RankManifest(attempt=order.attempt, rank=order.rank, files=wrote.files, pieces=pieces)
    data, name = encode_rank(manifest), f"rank-{order.rank}-{order.attempt}.json"
    write_plain(stage, name, data)
    return {
        "name": name,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "files": [record.name for record in wrote.files],
        "copies": [_copy(record) for record in wrote.files],
        "compressed": any(record.frames for record in wrote.files),
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


def compose_ranks(order: SaveRequest, pool: Pool, table: LayoutTable, votes: Sequence[PartRecord]) -> Manifest:
    """The manifest of the checkpoint; where bytes lie, those of the ranks say."""
    entries = tuple(
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
        for sign in pool.signs
    )
    ranks = tuple(
        RankRecord(v["name"], v["size"], v["sha256"], tuple(v["files"]), tuple(FileCopy(*copy) for copy in v["copies"]))
        for v in votes
    )
    return Manifest(
        id=order.id,
        attempt=order.attempt,
        name=order.name,
        step=order.step,
        created=datetime.now(UTC).isoformat(timespec="microseconds"),
        layout=order.layout.value,
        compression=order.compression.value,
        features=(RANKS, COMPRESSED) if any(vote["compressed"] for vote in votes) else (RANKS,),
        world_size=len(votes),
        metrics=pack(dict(order.metrics)),
        metadata=pack(dict(order.metadata)),
        tree=pool.tree,
        entries=entries,
        layouts=tuple(table.layouts),
        placed=tuple(table.placed),
        ranks=ranks,
    )
