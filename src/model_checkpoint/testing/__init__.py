"""Testing: faults, crashes and inheritable suites, for authors of stores and for this project.

store_suite    what every store must do, as tests to inherit.
link_suite     sharing one copy of a file between checkpoints, the part of the store contract incremental saves need.
trash_suite    deleting, bringing back and recovery, the second half of the store suite.
sidecar_suite  pins, tags and notes beside the checkpoints, for stores that keep them.
mend_suite     files put into a published checkpoint, the part of the store contract that parity and repair need.
backend_suite  what every storage backend must do, as tests to inherit.
store_maker    what every suite for stores asks of whoever inherits it.
blobs          small checkpoints made of plain bytes, to exercise a store without tensors.
faults         a stand-in for the system that records every storage call and fails, cuts or kills at a chosen one.
crash          cut a piece of work at each of its storage calls in turn.
"""

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
