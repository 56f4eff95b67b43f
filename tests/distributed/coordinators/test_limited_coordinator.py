"""Who waits for others within the limit of one call."""

from model_checkpoint.distributed import LocalCoordinator
from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.calling.limited_coordinator import LimitedCoordinator


def limited(inner, seconds):
    return LimitedCoordinator(inner, CallLimit("the save", seconds=seconds, world_size=inner.world_size))


def test_one_rank_alone_has_nobody_to_tell():
    assert limited(LocalCoordinator(patience=3), 5).telling == 0.0
    assert 0 < limited(LocalCoordinator.group(2, patience=3)[0], 5).telling <= 3
