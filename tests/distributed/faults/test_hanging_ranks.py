"""The disk of one rank never answers again: all ranks tell the same, whether patience or timeout ends the call."""

import pytest
from tests.distributed.faults.hang_scenes import LATE, SOON, first_saved, named, trials

import model_checkpoint as mc

pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.fault]

SCENE = "tests.distributed.faults.hang_scenes:beside_a_hanging_disk"
AFTER = 5.0  # seconds after its timeout in which a call of several ranks comes back
LOADED = 4.0  # seconds more, where others want the machine too


def test_all_ranks_tell_the_same_of_a_disk_that_never_answers_again(zygote, tmp_path):
    """Who hangs learns from the others what they were told, and they from it: none can know alone."""
    first_saved(tmp_path)

    told = zygote.run(SCENE, 3, tmp_path / "scene", seconds=120, roots=str(tmp_path))

    for way, where, victim, patience, timeout in trials():
        trial = way, where, victim, patience, timeout
        outcomes = [one[named(trial)] for one in told]
        names = [info.prefix for info in mc.list_checkpoints(tmp_path / named(trial))]
        assert len({(one["error"], one.get("message")) for one in outcomes}) == 1, (trial, outcomes)
        assert all(one["seconds"] < timeout + AFTER + LOADED for one in outcomes), (trial, outcomes)
        if where == "published":
            assert outcomes[0]["error"] is None, (trial, outcomes)  # two ranks have found it, and flushed it
        elif where == "published for all":
            assert outcomes[0]["error"] == "DurabilityUnknown", (trial, outcomes)
            assert "look for it (`mckpt ls`), and run `mckpt verify`" in outcomes[0]["message"], trial
        else:
            assert outcomes[0]["error"] == {SOON: "RankLost", LATE: "CallTimeout"}[patience], (trial, outcomes)
        assert all(one.get("ranks", [victim]) == [victim] for one in outcomes), (trial, outcomes)
        assert ("x" in names) == where.startswith("published"), trial
