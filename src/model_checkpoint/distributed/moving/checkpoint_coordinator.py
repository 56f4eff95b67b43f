"""Checkpoint coordinator: all ranks save one checkpoint, or none does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from model_checkpoint.coordination import Coordinator
from model_checkpoint.distributed.calling.call_options import SaveOptions
from model_checkpoint.distributed.records.checkpoint_metadata import CheckpointMetadata, metadata_of
from model_checkpoint.distributed.records.shard_data import ShardData
from model_checkpoint.distributed.storing.storage_roots import Storage, store_of
from model_checkpoint.engine.background.save_async import save_async
from model_checkpoint.engine.common.progress import Listen
from model_checkpoint.engine.jobs.job import SaveJob
from model_checkpoint.engine.ranks.rank_agreement import agree
from model_checkpoint.engine.ranks.words import Word
from model_checkpoint.engine.writing.save import save
from model_checkpoint.errors import UnsupportedType

SHARD = "shard"  # the part that holds what came as ShardData

LocalSave = Callable[[], ShardData | Mapping[str, Any]]


class CheckpointCoordinator:
    """Brings together what the ranks have.

    Example:
        >>> import numpy as np
        >>> from model_checkpoint.distributed import LocalCoordinator
        >>> saver = CheckpointCoordinator(LocalCoordinator(), "memory://doc-coordinator")
        >>> saver.coordinate_save("first", lambda: ShardData.of({"w": np.zeros(3)})).parts
        ('shard',)
    """

    def __init__(self, coordinator: Coordinator, storage: Storage) -> None:
        self._ranks, self._store = coordinator, store_of(storage)

    def coordinate_save(
        self, prefix: str, local_save_func: LocalSave, *, options: SaveOptions | None = None, progress: Listen = None
    ) -> CheckpointMetadata | None:
        """Save what ``local_save_func`` gives on each rank: a state by parts, or a :class:`ShardData`.

        Every rank makes this call. Rank 0 gets the metadata, the others None.
        """
        engine_options = self._engine_options(prefix, SaveOptions() if options is None else options, progress)
        save(self._store, self._brought(local_save_func), **engine_options)
        return metadata_of(self._store, prefix) if self._ranks.rank == 0 else None

    def begin_save(
        self, prefix: str, local_save_func: LocalSave, *, options: SaveOptions, progress: Listen = None
    ) -> SaveJob:
        """Copy what ``local_save_func`` gives and return; the save goes on in the background, on every rank."""
        return save_async(
            self._store, self._brought(local_save_func), **self._engine_options(prefix, options, progress)
        )

    def _engine_options(self, prefix: str, options: SaveOptions, progress: Listen) -> dict[str, Any]:
        return {
            "name": prefix,
            "metadata": options.custom_metadata,
            "overwrite": options.overwrite,
            "format": options.format,
            "compression": options.compression_level,
            "coordinator": self._ranks,
            "progress": progress,
        }

    def _brought(self, local_save_func: LocalSave) -> Mapping[str, Any]:
        """What this rank saves, once every rank has something to."""
        states: list[Mapping[str, Any]] = []

        def bring() -> Word:
            found = local_save_func()
            if isinstance(found, ShardData):
                found = {SHARD: found.tensors()}
            if not isinstance(found, Mapping):
                raise UnsupportedType(
                    f"what a rank saves is a ShardData or a mapping of parts, got {type(found).__qualname__}. Nothing "
                    "was done."
                )
            states.append(dict(found))
            return {}

        agree(self._ranks, "bring", bring)
        return states[0]
