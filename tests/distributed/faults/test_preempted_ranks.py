"""A scheduler gives notice to some ranks or all: they save at the same step, what all of them have time for."""

import signal

import numpy as np
import pytest
import torch
from tests.distributed.threads import all_well, on_ranks, told

import model_checkpoint as mc

SCENES = "tests.distributed.scenes"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("signalled", [(0, 1), (1,)])
def test_ranks_of_which_any_gets_a_signal_save_at_the_same_step(zygote, tmp_path, signalled):
    group = zygote.start(f"{SCENES}:preempted", 2, tmp_path / "scene", root=str(tmp_path))
    try:
        for rank in range(2):
            group.wait_for(f"going-{rank}")
        for rank in signalled:
            group.signal(rank, signal.SIGTERM)
        first, second = group.values()
    finally:
        group.end()

    assert first["step"] == second["step"] >= 3
    assert (first["world"], first["same"], second["same"]) == (2, True, True)
    assert max(first["left"], second["left"]) < 60.0
    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [first["step"]]
    assert all(health.ok for health in mc.verify(tmp_path))
    truth = torch.load(tmp_path / "truth.pt")
    alone = mc.load(tmp_path, parts="model")["model"]
    assert all(torch.equal(value, truth[name]) for name, value in alone.items())


def test_what_one_rank_has_no_time_for_all_leave_out(tmp_path):
    state = {"model": np.arange(4096.0), "optimizer": np.ones(8192), "history": np.zeros(16384), "epoch": 3}

    def save(ranks):
        seconds = 3600.0 if ranks.rank != 1 else 1e-9
        with mc.preemption(deadline=seconds, signals=(), parts=["model", "optimizer"]) as notice:
            return notice.save(tmp_path, state, step=7, coordinator=ranks)

    infos = all_well(on_ranks(3, save))

    assert {(info.prefix, info.left_out, info.world_size) for info in infos} == {
        ("emergency-00000007", ("optimizer", "the rest"), 3)
    }
    loaded = mc.load(tmp_path, name="emergency-00000007", parts=["model", "epoch"])
    assert np.array_equal(loaded["model"], state["model"])
    assert loaded["epoch"] == 3
    with pytest.raises(mc.CheckpointNotFound, match="incomplete"):
        mc.load(tmp_path)


def test_a_rank_whose_state_cannot_be_saved_is_named_by_all(tmp_path):
    def save(ranks):
        with mc.preemption(deadline=60.0, signals=()) as notice:
            return notice.save(tmp_path, {"x": object() if ranks.rank == 1 else 1}, step=7, coordinator=ranks)

    error = told(on_ranks(3, save))

    assert str(error).startswith("rank 1 of 3: ")
    assert mc.list_checkpoints(tmp_path) == []


def test_no_rank_saves_while_none_was_given_notice(tmp_path):
    def ask(ranks):
        with mc.preemption(deadline=60.0, signals=()) as notice:
            return notice.should_save(ranks), notice.seconds_left()

    assert all_well(on_ranks(3, ask)) == [(False, 60.0)] * 3
