"""The front door of this room: every public name and the module that defines it. The one list."""

from .connection import EnhancedDatabaseConnection as EnhancedDatabaseConnection
from .connection_classes import open_catalog as open_catalog
from .connection_classes import register_connection as register_connection
from .errors import DatabaseBusy as DatabaseBusy
from .errors import DatabaseClosed as DatabaseClosed
from .errors import DatabaseUnreachable as DatabaseUnreachable
from .errors import MigrationFailed as MigrationFailed
from .errors import RowRefused as RowRefused
from .errors import SchemaOutdated as SchemaOutdated
from .errors import SchemaTooNew as SchemaTooNew
from .migration_manager import MigrationManager as MigrationManager
from .overview.checkpoint_search import CheckpointSearch as CheckpointSearch
from .records import AuditEntry as AuditEntry
from .records import Checkpoint as Checkpoint
from .records import DeletionIntent as DeletionIntent
from .records import Experiment as Experiment
from .records import ExperimentStatistics as ExperimentStatistics
from .records import IntegrityRecord as IntegrityRecord
from .records import LineageEdge as LineageEdge
from .records import Metric as Metric
from .records import MetricSummary as MetricSummary
from .records import Page as Page
from .records import RunOverview as RunOverview
from .records import SchemaChange as SchemaChange
from .records import Series as Series
from .records import SeriesWindow as SeriesWindow
