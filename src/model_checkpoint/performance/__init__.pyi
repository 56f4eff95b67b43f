"""The front door of this room: every public name and the module that defines it. The one list."""

from .atomic_file import TargetExists as TargetExists
from .batches import BatchInterrupted as BatchInterrupted
from .batches import BatchProcessor as BatchProcessor
from .batches import BatchProgress as BatchProgress
from .batches import BatchReport as BatchReport
from .batches import BatchWriter as BatchWriter
from .batches import RowFailure as RowFailure
from .bulk_export import BulkDataExporter as BulkDataExporter
from .bulk_export import BulkExport as BulkExport
from .caches import CacheManager as CacheManager
from .caches import CheckpointCache as CheckpointCache
from .caches import ExperimentCache as ExperimentCache
from .lru import LRUCache as LRUCache
from .lru import LRUStats as LRUStats
from .operation_monitor import OperationMonitor as OperationMonitor
from .operation_monitor import OperationStats as OperationStats
from .parallel_checkpoints import ParallelCheckpointProcessor as ParallelCheckpointProcessor
from .parallel_checkpoints import ParallelOutcome as ParallelOutcome
from .parquet_rows import ParquetUnavailable as ParquetUnavailable
from .row_formats import RowRejected as RowRejected
