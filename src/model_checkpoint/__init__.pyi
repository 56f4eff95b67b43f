"""The front door: every public name and the module that defines it. The one list."""

from .engine.background.preemption import preemption as preemption
from .engine.background.save_async import finish_saves as finish_saves
from .engine.background.save_async import save_async as save_async
from .engine.common.info import CheckpointInfo as CheckpointInfo
from .engine.jobs.job import SaveJob as SaveJob
from .engine.jobs.running_save import SaveState as SaveState
from .engine.reading.diff import diff as diff
from .engine.reading.load import load as load
from .engine.reading.slices import load_slice as load_slice
from .engine.reading.verify import verify as verify
from .engine.root.delete import delete as delete
from .engine.root.delete import undelete as undelete
from .engine.root.describe import describe as describe
from .engine.root.listing import list_checkpoints as list_checkpoints
from .engine.root.recover import collect_garbage as collect_garbage
from .engine.writing.save import save as save
from .errors import CheckpointException as CheckpointException
from .errors import CheckpointNotFound as CheckpointNotFound
from .errors import CheckpointWarning as CheckpointWarning
from .errors import ExceptionType as ExceptionType
from .errors import WrongReference as WrongReference
from .events import Progress as Progress
from .integrations.loop.run import Run as Run
from .options import CheckpointFormat as CheckpointFormat
from .options import CompressionLevel as CompressionLevel
from .plan import LoadReport as LoadReport
from .tree import register_codec as register_codec
from .tree import rng_state as rng_state

__version__: str
