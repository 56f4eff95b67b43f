"""The front door of this room: every public name and the module that defines it. The one list."""

from .delivery import Tally as Tally
from .experiment_tracker import ExperimentTracker as ExperimentTracker
from .reporting.run_comparison import RunComparison as RunComparison
from .reporting.vitals import RunState as RunState
from .reporting.vitals import RunVitals as RunVitals
from .reporting.vitals import judge_run as judge_run
from .spool import Spool as Spool
from .tracker_options import TrackerOptions as TrackerOptions
