"""Checkpoint loader: all ranks load one checkpoint, or none does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from model_checkpoint.coordination import Coordinator
from model_checkpoint.distributed.calling.call_options import LoadOptions
from model_checkpoint.distributed.moving.checkpoint_coordinator import SHARD
from model_checkpoint.distributed.records.checkpoint_metadata import metadata_of
from model_checkpoint.distributed.records.load_result import LoadResult
from model_checkpoint.distributed.records.shard_data import ShardData
from model_checkpoint.distributed.storing.storage_roots import Storage, store_of
from model_checkpoint.engine.common.progress import Listen
from model_checkpoint.engine.ranks.rank_agreement import agree_at_work, require_same
from model_checkpoint.engine.ranks.words import Word
from model_checkpoint.engine.reading.load import load
from model_checkpoint.errors import OptionInvalid, WrongReference
from model_checkpoint.events import Emit
from model_checkpoint.plan import LoadReport


class CheckpointLoader:
    """Brings a checkpoint back to the ranks.

    Example:
        >>> import numpy as np
        >>> from model_checkpoint.distributed import CheckpointCoordinator, LocalCoordinator
        >>> ranks, root = LocalCoordinator(), "memory://doc-loader"
        >>> _ = CheckpointCoordinator(ranks, root).coordinate_save("first", lambda: ShardData.of({"w": np.ones(2)}))
        >>> result = CheckpointLoader(ranks, root).coordinate_load("first", 1)
        >>> [shard.tensors()["w"].tolist() for shard in result.shards]
        [[1.0, 1.0]]
    """

    def __init__(self, coordinator: Coordinator, storage: Storage) -> None:
        self._ranks, self._store = coordinator, store_of(storage)

    def coordinate_load(self, prefix: str, target_world_size: int | None = None) -> LoadResult:
        """The shards that fall to this rank: shard ``i`` goes to rank ``i`` modulo the ranks of now.

        For checkpoints of :class:`ShardData`; every rank makes this call.
        """
        found: list[LoadResult] = []

        def read(emit: Emit) -> Word:
            size = self._ranks.world_size if target_world_size is None else target_world_size
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise OptionInvalid(f"target_world_size={size!r}: expected 1 or more. Nothing was done.")
            found.append(self._shards(prefix, size, emit))
            return {"target_world_size": size, "id": found[0].metadata.id}

        def same(words: list[Word]) -> Word:
            for key in ("target_world_size", "id"):
                require_same(words, key, self._store.url)
            return {}

        agree_at_work(self._ranks, "shards", read, same)
        return found[0]

    def _shards(self, prefix: str, target: int, emit: Emit) -> LoadResult:
        metadata = metadata_of(self._store, prefix)
        if SHARD not in metadata.parts:
            raise WrongReference(
                f"{metadata.path}: was not saved as ShardData, its parts are {', '.join(metadata.parts)}. Load it with "
                "DistributedCheckpoint.load or mc.load.",
                metadata.path,
            )
        mine = range(self._ranks.rank, metadata.world_size, target)
        shards = [ShardData.of(self._shard(prefix, number, emit), rank=number) for number in mine]
        return LoadResult(metadata=metadata, shards=tuple(shards))

    def _shard(self, prefix: str, number: int, emit: Emit) -> Any:
        return load(self._store, name=prefix, parts=SHARD, per_rank=number, progress=emit)[SHARD]

    def coordinate_restore(
        self,
        prefix: str,
        into: dict[str, Any],
        *,
        options: LoadOptions,
        resharded: bool,
        progress: Listen = None,
        report: Callable[[LoadReport], object] | None = None,
    ) -> None:
        """Fill live objects, part by part; every rank makes this call, and no byte changes before all can go on."""
        parts: Sequence[str] = list(into)
        load(
            self._store,
            name=prefix,
            into=into,
            parts=parts,
            strict=options.strict_mode,
            coordinator=self._ranks,
            per_rank=options.per_rank,
            reshard=options.resharding_strategy if resharded else "parallel",
            progress=progress,
            report=report,
        )
