"""Programs of torch.distributed.checkpoint save and load through our format: real processes joined by gloo."""

import numpy as np
import pytest
import torch

import model_checkpoint as mc

pytestmark = [pytest.mark.slow, pytest.mark.distributed]

SCENES = "tests.integrations.dcp.dcp_scenes"


@pytest.mark.parametrize(("world", "how"), [(1, "plain"), (2, "async"), (2, "process"), (4, "uncollected")])
def test_what_dcp_saves_comes_back_through_dcp_in_any_layout(zygote, tmp_path, world, how):
    back = zygote.run(f"{SCENES}:save", world, tmp_path / "scene", root=str(tmp_path), how=how)

    assert back == [[True] * 3] * world
    assert [(info.step, info.world_size) for info in mc.list_checkpoints(tmp_path)] == [(1, world)]
    assert all(health.ok for health in mc.verify(tmp_path))


def test_a_checkpoint_of_four_ranks_is_loaded_on_two_on_one_and_by_our_own_front_door(zygote, tmp_path):
    back = zygote.run(f"{SCENES}:save", 4, tmp_path / "save", root=str(tmp_path))

    assert back == [[True] * 3] * 4
    for world in (2, 1):
        found = zygote.run(f"{SCENES}:load", world, tmp_path / f"load{world}", root=str(tmp_path))
        assert found == [[True] * 4] * world

    state = mc.load(tmp_path)
    assert torch.equal(state["model"]["rows"], torch.arange(60.0).reshape(10, 6))
    assert state["model"]["half"].dtype is torch.bfloat16
    assert state["model"]["empty"].shape == (0, 3)
    assert (state["epoch"], state["words"]) == (3, {"names": ["a", "b"], "pair": (1, 2.5)})
    assert state["nested"][0] == 1
    assert mc.list_checkpoints(tmp_path)[0].metrics == {"loss": 0.5}


def test_an_id_names_root_checkpoint_and_step(zygote, tmp_path):
    zygote.run(f"{SCENES}:save", 2, tmp_path / "save", root=str(tmp_path), how="id")

    assert zygote.run(f"{SCENES}:load_by_id", 2, tmp_path / "load", root=str(tmp_path)) == [True] * 2
    assert [(info.prefix, info.step) for info in mc.list_checkpoints(tmp_path)] == [("step-1", 1)]


def test_plans_from_a_cache_save_what_is_there_now(zygote, tmp_path):
    assert zygote.run(f"{SCENES}:cached_plans", 4, tmp_path / "scene", root=str(tmp_path)) == [[True] * 3] * 4


def test_plain_values_that_differ_by_rank_are_kept_apart(zygote, tmp_path):
    """DCP keeps one of them, and gives it to all."""
    assert zygote.run(f"{SCENES}:own_values", 4, tmp_path / "save", root=str(tmp_path)) == [True] * 4

    for alike, only, told, seed, step in zygote.run(
        f"{SCENES}:load_own_values", 2, tmp_path / "load", root=str(tmp_path)
    ):
        assert (alike, only) == (1.0, 3)
        assert len(told) == 1
        assert told[0].startswith("StructureMismatch: seed: the 4 ranks that saved have values of their own")
        assert (seed, step) == (2, 2.0)


def test_parts_that_nobody_completes_are_refused_and_whole_tensors_saved_without_a_group(zygote, tmp_path):
    for rank, (torn, own) in enumerate(
        zygote.run(f"{SCENES}:without_group", 4, tmp_path / "scene", root=str(tmp_path / "root"))
    ):
        assert len(torn) == 1
        assert torn[0].startswith("StructureMismatch: rows: this process has")
        assert "without no_dist=True" in torn[0]
        assert own == [rank, rank]


def test_a_writer_must_know_the_group_of_its_save(zygote, tmp_path):
    for told, world in zygote.run(f"{SCENES}:half_groups", 4, tmp_path / "scene", root=str(tmp_path / "root")):
        assert told
        assert all("process_group=" in text for text in told)
        assert world == 2


def test_the_error_of_one_rank_is_told_to_all_and_nothing_is_visible(zygote, tmp_path):
    for told, steps in zygote.run(f"{SCENES}:failing_rank", 4, tmp_path / "scene", root=str(tmp_path / "root")):
        assert len(told) == 1
        assert "rank 2 of 4" in told[0]
        assert "the device is gone" in told[0]
        assert steps == [1]


@pytest.mark.parametrize("victim", [0, 3])
def test_a_rank_killed_while_it_saves_leaves_the_checkpoint_before_newest_and_whole(zygote, tmp_path, victim):
    root = tmp_path / "root"
    group = zygote.start(f"{SCENES}:killed_rank", 4, tmp_path / "scene", root=str(root), victim=victim)
    try:
        told = group.results([rank for rank in range(4) if rank != victim])
    finally:
        group.end()

    assert all(one["value"] != "saved" for one in told)
    assert [info.step for info in mc.list_checkpoints(root)] == [1]
    assert all(health.ok for health in mc.verify(root))
    assert torch.equal(mc.load(root)["model"]["rows"], torch.arange(60.0).reshape(10, 6))


def test_training_under_fsdp2_goes_on_as_if_it_had_never_stopped(zygote, tmp_path):
    for unbroken, resumed in zygote.run(f"{SCENES}:train_through_dcp", 4, tmp_path / "four", root=str(tmp_path)):
        assert resumed == unbroken

    for losses in zygote.run(f"{SCENES}:resume_through_dcp", 2, tmp_path / "two", root=str(tmp_path)):
        assert np.allclose(losses, unbroken, rtol=1e-5)


def test_rows_that_dcp_would_put_in_the_wrong_place_are_refused(zygote, tmp_path):
    for told in zygote.run(f"{SCENES}:uneven_strides", 6, tmp_path / "scene", root=str(tmp_path / "root")):
        assert len(told) == 1
        assert "so nobody knows which elements those are" in told[0]
        assert "coordinator=TorchCoordinator()" in told[0]
