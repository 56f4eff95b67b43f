"""A rank dies or stops at each call of a deletion: all tell the same, and it stays true when the sleeper wakes."""

import json
import signal

import pytest
from tests.distributed.faults.deletion_scenes import WORDS, CountedCalls, outcome_of, save_first, wait_for
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.distributed import DistributedCheckpoint
from model_checkpoint.storage.local.store import LocalStore

pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.fault]

SCENE = "tests.distributed.faults.deletion_scenes:struck_while_deleting"


def calls_of_rank_0(root):
    """The storage calls that rank 0 makes of a deletion."""
    save_first(root)
    calls = CountedCalls()

    def work(ranks):
        store = LocalStore(root, calls=calls) if ranks.rank == 0 else LocalStore(root)
        return outcome_of(DistributedCheckpoint(ranks, store))

    assert all_well(on_ranks(2, work)) == [{"error": None}] * 2
    return calls.made


def names_in(root):
    """The checkpoints of a root, all of them whole."""
    assert all(health.ok for health in mc.verify(root)), root
    return sorted(info.prefix for info in mc.list_checkpoints(root))


def told_by(roots, rank):
    """What each deletion came to on a rank, when all have."""
    wait_for(roots / f"told-{rank}")
    return json.loads((roots / f"told-{rank}").read_text())


def check_told(outcomes, root, victim, *, gone):
    """What all who live have told, and what is there."""
    trial = root.name
    assert names_in(root) == (["y"] if gone else ["x", "y"]), (trial, outcomes)
    if gone:
        assert outcomes == [{"error": None}] * len(outcomes), (trial, outcomes)
        return
    assert all((one["error"], one["ranks"]) == ("RankLost", [victim]) for one in outcomes), (trial, outcomes)
    assert all(f"rank {victim} " in one["message"] for one in outcomes), (trial, outcomes)


@pytest.mark.parametrize("fault", ["stop", "kill"])
@pytest.mark.parametrize(("world", "victim"), [(2, 0), (4, 0), (2, 1)])
def test_all_ranks_tell_the_same_of_a_deletion_in_which_one_dies_or_stops(zygote, tmp_path, world, victim, fault):
    made = calls_of_rank_0(tmp_path / "counted")
    removal = next(at for at, call in enumerate(made, 1) if call[0] == "rename" and "/.trash/" in call[2])
    moments = list(WORDS) if victim else range(1, len(made) + 1)
    for moment in moments:
        save_first(tmp_path / str(moment))

    arguments = {"roots": str(tmp_path), "fault": fault, "victim": victim, "moments": list(moments)}
    group = zygote.start(SCENE, world, tmp_path / "scene", **arguments)
    try:
        told, gone = [told_by(tmp_path, rank) for rank in range(world) if rank != victim], {}
        for moment in moments:
            gone[moment] = moment == "vote said" if victim else moment > removal
            if fault == "kill" and moment == "vote said":
                gone[moment] = "x" not in names_in(tmp_path / moment)  # what it has sent may be dropped when it dies
            check_told([one[str(moment)] for one in told], tmp_path / str(moment), victim, gone=gone[moment])
        if fault == "stop":
            group.signal(victim, signal.SIGCONT)  # the sleeper wakes when all others have told
            told.append(told_by(tmp_path, victim))
        for moment in moments:
            check_told([one[str(moment)] for one in told], tmp_path / str(moment), victim, gone=gone[moment])
            if gone[moment]:
                assert mc.undelete(tmp_path / str(moment), name="x").prefix == "x"
    finally:
        group.end()
