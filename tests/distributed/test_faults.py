"""A rank dies, stops, or its disk fails, in each phase of a save: all learn it, and nothing half-done is to be seen."""

import signal
import time

import numpy as np
import pytest
from tests.distributed.fault_scenes import PATIENCE

import model_checkpoint as mc

pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.fault]

SCENE = "tests.distributed.fault_scenes:save_under_fault"
FOLLOWER = ["begin", "write", "flush", "voted"]
LEADER = ["begin", "write", "flush", "publish", "published"]
AT_ONCE = 3  # groups beside each other: most of their time they wait


def trials(world, fault):
    """Rank 0 and the last of two, or one in the middle of four; of a disk that fails, whichever rank's it is."""
    for victim in range(world) if fault in ("full", "broken") else (0, world - 1) if world == 2 else (0, 2):
        phases = LEADER if victim == 0 else FOLLOWER
        if fault in ("full", "broken"):
            phases = ["write", "flush", "publish"] if victim == 0 else ["write", "flush"]
        elif fault == "term":
            phases = ["write"]
        for phase in phases:
            yield victim, phase


def check(group, root, world, fault, phase, victim):
    """What must hold, whatever happened."""
    others = [rank for rank in range(world) if rank != victim]
    told = [result["value"] for result in group.results(others if fault in ("kill", "stop", "term") else None)]
    committed = [info.step for info in mc.list_checkpoints(root)] == [2, 1]
    trial = f"W={world} {fault} of rank {victim} at {phase}: {told}"

    assert all(("saved" in one) == committed for one in told), trial
    assert committed == (phase == "published" or (phase == "voted" and fault == "kill")) or phase == "voted", trial
    if not committed:
        assert len({one["error"] for one in told}) == 1, trial
        assert all(victim in one["ranks"] for one in told), trial
        assert all(one["seconds"] < 4 * PATIENCE for one in told), trial
        expected = {"full": "DiskFull", "broken": "StorageFailure"}.get(fault, "RankLost")
        assert {one["error"] for one in told} == {expected}, trial
        assert all(f"rank {victim}" in one["message"] for one in told), trial
    assert all(health.ok for health in mc.verify(root)), trial
    assert np.array_equal(mc.load(root, step=1, parts="all")["all"][0], np.arange(1024) + 1), trial
    return committed


def test_a_rank_that_is_interrupted_takes_the_others_along_at_once(zygote, tmp_path):
    arguments = {"root": str(tmp_path), "fault": "interrupt", "phase": "write", "victim": 1}
    group = zygote.start(SCENE, 3, tmp_path / "scene", **arguments)
    try:
        first, victim, last = group.results()
    finally:
        group.end()

    assert victim["error"] == "KeyboardInterrupt"
    for one in (first["value"], last["value"]):
        assert (one["error"], one["ranks"]) == ("RankFailed", [1])
        assert one["message"].startswith("rank 1 of 3: KeyboardInterrupt")
        assert one["seconds"] < PATIENCE
    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [1]


@pytest.mark.parametrize("fault", ["kill", "stop", "term", "full", "broken"])
@pytest.mark.parametrize("world", [2, 4])
def test_all_ranks_learn_what_became_of_a_save_and_nothing_half_done_is_seen(zygote, tmp_path, world, fault):
    waiting = list(trials(world, fault))
    while waiting:
        some, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        groups = []
        for victim, phase in some:
            root = tmp_path / f"{victim}-{phase}"
            arguments = {"root": str(root), "fault": fault, "phase": phase, "victim": victim}
            groups.append((zygote.start(SCENE, world, root / "scene", **arguments), root, phase, victim))
        try:
            for group, root, phase, victim in groups:
                committed = check(group, root, world, fault, phase, victim)
                if fault == "stop":  # the sleeper wakes when all others have reported
                    group.signal(victim, signal.SIGCONT)
                    late = group.results([victim])[0]["value"]
                    assert ("saved" in late) == committed, late
                    time.sleep(0.1)
                    assert [info.step for info in mc.list_checkpoints(root)] == ([2, 1] if committed else [1])
        finally:
            for group, *_ in groups:
                group.end()
