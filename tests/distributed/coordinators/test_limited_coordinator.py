"""Who waits for others within the limit of one call: as long as that allows, and not for a store that is too slow."""

import time

import pytest

from model_checkpoint.distributed import LocalCoordinator
from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.calling.limited_coordinator import LimitedCoordinator


def limited(inner, seconds):
    return LimitedCoordinator(inner, CallLimit("the save", seconds=seconds, world_size=inner.world_size))


def test_one_rank_alone_has_nobody_to_tell():
    assert limited(LocalCoordinator(patience=3), 5).telling == 0.0
    assert 0 < limited(LocalCoordinator.group(2, patience=3)[0], 5).telling <= 3


def test_a_store_whose_answer_would_come_after_the_end_is_not_asked():
    class Unasked(LocalCoordinator):
        def collect(self, keys, until):
            raise AssertionError("asked")

    ranks = limited(Unasked.group(2)[0], 0.01)
    ranks._delay = 5.0

    assert ranks.collect(["save-1/hello/1"], 0.0) == {}
    with pytest.raises(TimeoutError, match="the save"):
        ranks.collect(["save-1/hello/1"], time.monotonic() + 1)
