"""The front door of this room: every public name and the module that defines it. The one list."""

from .bridge import Bridge as Bridge
from .bridge import BridgeTally as BridgeTally
from .mlflow_tracker import MlflowTracker as MlflowTracker
from .other_tracker import OtherTracker as OtherTracker
from .tensorboard_tracker import TensorboardTracker as TensorboardTracker
from .tracker_names import installed_trackers as installed_trackers
from .trackio_tracker import TrackioTracker as TrackioTracker
from .wandb_tracker import WandbTracker as WandbTracker
