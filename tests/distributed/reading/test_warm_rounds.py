"""Ranks that find the files in the page cache do not agree on who reads what: each reads for itself, at once."""

import numpy as np
import pytest
from tests.distributed.reading.cold_reads import MIB, ColdReads
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

ROWS = (np.arange(80 * MIB) % 251).astype(np.uint8).reshape(40, 2 * MIB)  # more than what is worth agreeing on
ROUNDS = {"hello", "open0", "ready0", "go0", "done0", "end0"}


class WarmReads(Syscalls):
    """A system whose page cache has everything."""

    def resident(self, fd, size):
        return 1.0


class Heard:
    """A coordinator that notes what is said through it."""

    def __init__(self, inner):
        self._inner, self.topics = inner, set()

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def put(self, key, value):
        self.topics.add(key.split("/")[-2])
        self._inner.put(key, value)


@pytest.mark.parametrize(
    ("system", "besides"), [(WarmReads, set()), (ColdReads, {"want0.0", "all-want0.0", "want0.1", "all-want0.1"})]
)
def test_only_ranks_that_read_from_far_say_what_they_want(tmp_path, system, besides):
    mc.save(tmp_path, {"w": ROWS}, step=1)

    def load(coordinator):
        heard, live = Heard(coordinator), {"w": np.zeros_like(ROWS)}
        mc.load(LocalStore(tmp_path, calls=system()), into=live, coordinator=heard)
        return heard.topics - {"beat"}, np.array_equal(live["w"], ROWS)

    found = all_well(on_ranks(2, load))

    assert [well for _, well in found] == [True, True]
    assert found[0][0] | found[1][0] == ROUNDS | besides


def test_ranks_that_read_from_far_show_each_other_what_a_rank_that_does_not_has_in_its_cache(tmp_path):
    mc.save(tmp_path, {"w": ROWS}, step=1)

    def load(coordinator):
        live = {"w": np.zeros_like(ROWS)}
        calls = WarmReads() if coordinator.rank == 1 else ColdReads()
        mc.load(LocalStore(tmp_path, calls=calls), into=live, coordinator=coordinator)
        return getattr(calls, "nbytes", 0), np.array_equal(live["w"], ROWS)

    found = all_well(on_ranks(3, load))

    assert [well for _, well in found] == [True] * 3
    assert found[0][0] + found[2][0] < 1.2 * ROWS.nbytes
