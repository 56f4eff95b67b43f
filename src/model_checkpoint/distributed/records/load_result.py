"""Load result: what a load came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model_checkpoint.distributed.records.checkpoint_metadata import CheckpointMetadata
from model_checkpoint.distributed.records.shard_data import ShardData
from model_checkpoint.distributed.records.state_dict import StateDict


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLoadResult:
    """What was loaded, from what, and what was left out."""

    metadata: CheckpointMetadata
    model_state: StateDict
    optimizer_state: StateDict | None  # None if the optimizer was left alone
    source_world_size: int  # ranks that saved
    target_world_size: int  # ranks that loaded
    was_resharded: bool
    rng_restored: bool
    warnings: Sequence[str] = ()  # what was left out or let through, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The shards of a checkpoint that fall to one rank."""

    metadata: CheckpointMetadata
    shards: Sequence[ShardData] = ()
