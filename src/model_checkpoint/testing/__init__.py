"""Testing: faults, crashes and inheritable suites, for this project and for authors of stores."""

from __future__ import annotations

from model_checkpoint.testing.crash import Ended as Ended
from model_checkpoint.testing.crash import Outcome as Outcome
from model_checkpoint.testing.crash import each_call as each_call
from model_checkpoint.testing.crash import run_here as run_here
from model_checkpoint.testing.crash import run_in_child as run_in_child
from model_checkpoint.testing.faults import Call as Call
from model_checkpoint.testing.faults import Fault as Fault
from model_checkpoint.testing.faults import FaultyCalls as FaultyCalls
from model_checkpoint.testing.faults import Kind as Kind
from model_checkpoint.testing.faults import flushes_retried as flushes_retried
