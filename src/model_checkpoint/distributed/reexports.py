"""Re-exports: names of lower rooms that programs of many ranks use."""

from __future__ import annotations

from model_checkpoint.coordination import Coordinator as Coordinator
from model_checkpoint.engine.common.info import CheckpointInfo as CheckpointInfo
from model_checkpoint.errors import CheckpointException as CheckpointException
from model_checkpoint.errors import CheckpointWarning as CheckpointWarning
from model_checkpoint.errors import ExceptionType as ExceptionType
from model_checkpoint.errors import NeedsCoordinator as NeedsCoordinator
from model_checkpoint.errors import RankFailed as RankFailed
from model_checkpoint.errors import RankLost as RankLost
from model_checkpoint.errors import RootNotShared as RootNotShared
from model_checkpoint.options import CheckpointFormat as CheckpointFormat
from model_checkpoint.options import CompressionLevel as CompressionLevel
from model_checkpoint.tree.arrays.shards.marker import Shard as Shard

DistributedCoordinator = Coordinator  # the name it has in programs that wrap one
