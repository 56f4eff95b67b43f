"""Several ranks under one run: killed all at once, or told to end, they go on as if they had not been."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.distributed import LocalCoordinator
from model_checkpoint.engine.root.run_position import run_position
from model_checkpoint.errors import RankLost, StructureMismatch
from model_checkpoint.integrations.loop.rank_boundary import RankBoundary

SCENE = "tests.integrations.loop.loop_ranks:train"


def killed_until_done(zygote, folder, root, *, kills, seed, **options):
    """Kill all ranks at random moments soon after a save, until they end; returns what they say and went on from."""
    chance, begun, turn = random.Random(seed), [], 0
    while True:
        saved, here = len(list(root.glob("checkpoints/*"))), folder / str(turn)
        group = zygote.start(SCENE, 2, here, root=str(root), **options)
        try:
            if turn == kills:
                ended = group.values()
                return ended, [*begun, *_begun(here)]
            while len(list(root.glob("checkpoints/*"))) == saved and group.result(0) is None:
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, 0.15))
            assert group.result(0) is None, group.result(0)
            for rank in (0, 1):
                group.signal(rank, signal.SIGKILL)
        finally:
            group.end()
        begun += _begun(here)
        turn += 1


def _begun(folder):
    steps = {int(Path(folder, f"from-{rank}").read_text()) for rank in (0, 1)}
    assert len(steps) == 1  # both from the same checkpoint
    return steps


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("workers", [0, 2])
def test_killed_ranks_end_as_if_they_had_not_been(zygote, tmp_path, workers):
    options = {"pause": 0.01, "workers": workers}
    whole = zygote.run(SCENE, 2, tmp_path / "whole", root=str(tmp_path / "a"), **options)

    ended, begun = killed_until_done(zygote, tmp_path, tmp_path / "b", kills=2, seed=workers, **options)

    assert ended == whole
    assert whole[0]["digest"] != whole[1]["digest"]  # each has generators of its own
    assert (whole[0]["step"], whole[0]["exact"]) == (51, True)
    assert begun[0] == 0
    assert begun[-1] > 0


@pytest.mark.slow
@pytest.mark.distributed
def test_ranks_leave_at_one_step_when_one_is_told_to_end_and_go_on_from_there(zygote, tmp_path):
    whole = zygote.run(SCENE, 2, tmp_path / "whole", root=str(tmp_path / "a"))

    left = zygote.run(SCENE, 2, tmp_path / "left", root=str(tmp_path / "b"), end=1, every=None, pause=0.01)
    ended = zygote.run(SCENE, 2, tmp_path / "ended", root=str(tmp_path / "b"))

    assert [one["code"] for one in left] == [143, 143]
    assert left[0]["step"] == left[1]["step"] > 5
    assert _begun(tmp_path / "ended") == {left[0]["step"]}
    assert left[0]["step"] % 2 == 0  # where the optimizer had stepped
    assert ended == whole


@pytest.mark.slow
@pytest.mark.distributed
def test_ranks_of_which_one_is_told_to_end_in_its_last_body_all_end_by_that(zygote, tmp_path):
    left = zygote.run(SCENE, 2, tmp_path, root=str(tmp_path / "a"), end=1, at=50, every=None)

    assert left == [{"code": 143, "step": 51}] * 2
    assert [one.step for one in mc.list_checkpoints(tmp_path / "a")] == [51]


@pytest.mark.slow
@pytest.mark.distributed
def test_the_example_of_the_page_runs_under_torchrun(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "loop.md").read_text()
    (tmp_path / "train.py").write_text(page.split('```python title="train_ranks.py"\n')[1].split("```")[0])
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}

    done = subprocess.run(start, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False)

    assert done.returncode == 0, done.stderr
    assert sorted(one.step for one in mc.list_checkpoints(tmp_path / "run")) == [5, 10, 15, 20, 24]


def go(root, ranks, **options):
    """Add up what comes, a little more on each rank."""
    total = {"sum": np.zeros(())}
    run = mc.Run(root, data=[1.0, 2.0, 3.0, 4.0], every=2, coordinator=ranks, total=total, **options)
    for batch in run:
        total["sum"] += batch + ranks.rank
        run.log(loss=10.0 - run.step)
    return run.step, float(total["sum"])


def test_each_rank_has_its_own_state_and_the_place_is_told_once(tmp_path):
    assert all_well(on_ranks(2, lambda ranks: go(tmp_path, ranks))) == [(4, 10.0), (4, 14.0)]
    assert all_well(on_ranks(2, lambda ranks: go(tmp_path, ranks, epochs=2))) == [(8, 20.0), (8, 28.0)]

    assert sorted(one.step for one in mc.list_checkpoints(tmp_path)) == [2, 4, 6, 8]
    shown = run_position(f"{tmp_path}@6")
    assert (shown.step, shown.epoch, shown.batch, shown.exact) == (6, 1, 2, True)


def test_rank_zero_alone_keeps_the_catalog_and_drops_what_is_old(tmp_path):
    url = f"sqlite:///{tmp_path}/runs.db"
    all_well(on_ranks(2, lambda ranks: go(tmp_path / "a", ranks, catalog=url, keep=[mc.last(2)])))
    all_well(on_ranks(2, lambda ranks: go(tmp_path / "b", ranks, keep=[mc.last(1)])))

    with EnhancedDatabaseConnection(url) as catalog:
        [run] = catalog.list_experiments().items
        assert (run.status, run.step) == ("completed", 4)
        assert [one.step for one in catalog.get_checkpoints_by_experiment(run.id)] == [4, 2]
        assert len(catalog.get_metrics(run.id, "loss")) == 4
    assert [one.step for one in mc.list_checkpoints(tmp_path / "b")] == [4]


@pytest.mark.parametrize("now", [1, 3])
def test_another_number_of_ranks_is_refused_by_name(tmp_path, now):
    all_well(on_ranks(2, lambda ranks: go(tmp_path, ranks)))

    for one in on_ranks(now, lambda ranks: go(tmp_path, ranks)):
        assert isinstance(one, StructureMismatch)
        assert f"saved by 2 ranks, now there are {now}" in str(one)
    with pytest.raises(StructureMismatch, match="saved by 2 ranks, now there are 1"):
        mc.Run(tmp_path, data=[1.0], total={"sum": np.zeros(())})


def test_a_rank_that_never_comes_is_named():
    first, _ = LocalCoordinator.group(2, patience=0.2)

    with pytest.raises(RankLost, match=r"rank 1 of 2 did not come to a boundary for 0\.2 s"):
        RankBoundary(first).verdict(3, told=0)


def test_ranks_at_different_steps_are_told_apart():
    def meet(ranks):
        return RankBoundary(ranks).verdict(3 + ranks.rank, told=0)

    for one in on_ranks(3, meet):
        assert isinstance(one, StructureMismatch)
        assert "rank 1 is at step 4, rank 0 at step 3" in str(one)


def test_a_signal_to_any_rank_is_the_verdict_for_all():
    def meet(ranks):
        here = RankBoundary(ranks)
        first = here.verdict(1, told=0)
        return first, here.verdict(2, told=15 if ranks.rank == 2 else 0)

    assert all_well(on_ranks(3, meet)) == [(0, 15)] * 3
