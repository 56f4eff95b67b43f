"""The front door of this room: every public name and the module that defines it. The one list."""

from .checksums import ChecksumCalculator as ChecksumCalculator
from .checksums import FileChecksum as FileChecksum
from .checksums import FileMissing as FileMissing
from .checksums import FileState as FileState
from .file_tracker import IntegrityTracker as IntegrityTracker
from .file_tracker import TrackedFile as TrackedFile
from .file_tracker import TrackerStatistics as TrackerStatistics
from .root_catalog import RootCatalog as RootCatalog
from .root_catalog import VerifiedCatalog as VerifiedCatalog
from .verdict import Check as Check
from .verdict import CheckName as CheckName
from .verdict import CheckpointHealth as CheckpointHealth
from .verdict import CheckpointVerdict as CheckpointVerdict
from .verdict import ScrubReport as ScrubReport
from .verifier import CheckpointVerifier as CheckpointVerifier
