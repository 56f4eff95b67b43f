"""The front door: every public name and the module that defines it. The one list."""

from .checkpoint.retention.disk_forecast import forecast as forecast
from .checkpoint.retention.keepers import best as best
from .checkpoint.retention.keepers import budget as budget
from .checkpoint.retention.keepers import every as every
from .checkpoint.retention.keepers import ladder as ladder
from .checkpoint.retention.keepers import last as last
from .checkpoint.retention.keepers import pareto as pareto
from .checkpoint.retention.keepers import pinned as pinned
from .checkpoint.retention.keepers import tagged as tagged
from .checkpoint.retention.keepers import younger_than as younger_than
from .checkpoint.retention.prune import prune as prune
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
from .engine.root.marking import note as note
from .engine.root.marking import pin as pin
from .engine.root.marking import tag as tag
from .engine.root.marking import unpin as unpin
from .engine.root.marking import untag as untag
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
