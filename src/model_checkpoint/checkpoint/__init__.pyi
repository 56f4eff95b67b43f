"""The front door of this room: every public name and the module that defines it. The one list."""

from .checkpoint_manager import EnhancedCheckpointManager as EnhancedCheckpointManager
from .errors import CheckpointUnknown as CheckpointUnknown
from .errors import NoExperiment as NoExperiment
from .loading.resuming import ResumeReport as ResumeReport
from .saving.background_save import CheckpointSave as CheckpointSave
