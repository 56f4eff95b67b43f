"""The front door of the room: every public name and the module that defines it."""

from .coordinators.jax_service import JaxCoordinator as JaxCoordinator
from .coordinators.local import LocalCoordinator as LocalCoordinator
from .coordinators.mpi import MpiCoordinator as MpiCoordinator
from .coordinators.torch_group import TorchCoordinator as TorchCoordinator
from .words import Coordinator as Coordinator
from .words import NeedsCoordinator as NeedsCoordinator
from .words import RankFailed as RankFailed
from .words import RankLost as RankLost
from .words import RootNotShared as RootNotShared
from .words import Shard as Shard
