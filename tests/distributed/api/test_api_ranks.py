"""DistributedCheckpoint on real processes joined by gloo."""

from datetime import datetime

import pytest

import model_checkpoint as mc

pytestmark = [pytest.mark.slow, pytest.mark.distributed]

SCENES = "tests.distributed.api.api_scenes"


@pytest.mark.parametrize(
    ("world", "format", "targets"),
    [
        (1, "shards", {2: "parallel"}),
        (2, "file", {3: "simple"}),
        (3, "hf", {1: "parallel"}),
        (4, "shards", {2: "parallel", 3: "simple"}),
    ],
)
def test_what_was_saved_on_some_ranks_is_loaded_on_others(zygote, tmp_path, world, format, targets):
    told = zygote.run(f"{SCENES}:save", world, tmp_path / "save", root=str(tmp_path / "root"), format=format)

    assert len({one["named"] for one in told}) == 1  # the clock of rank 0
    assert datetime.strptime(told[0]["named"][:26], "checkpoint_%Y%m%d_%H%M%S")
    assert all(one["listed"] == sorted([told[0]["named"], "later"]) for one in told)
    assert all(one["worlds"] == [world, world] for one in told)
    for target, strategy in targets.items():
        run = {"root": str(tmp_path / "root"), "strategy": strategy}
        loaded = zygote.run(f"{SCENES}:load", target, tmp_path / f"load-{target}", **run)
        assert loaded == [[world, target, True]] * target
    assert [info.prefix for info in mc.list_checkpoints(tmp_path / "root")] == ["later"]
    assert all(health.ok for health in mc.verify(tmp_path / "root"))


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_is_told_in_time_and_the_checkpoint_before_is_whole(zygote, tmp_path, victim):
    root = tmp_path / "root"
    group = zygote.start(f"{SCENES}:lose_a_rank", 3, tmp_path / "scene", root=str(root), victim=victim)
    try:
        told = [one["value"] for one in group.results([rank for rank in range(3) if rank != victim])]
    finally:
        group.end()

    expected = {"type": "timeout", "path": str(root / "checkpoints" / "second"), "timeout": True}
    expected |= {"class": "CallTimeout", "ranks": [victim]}
    assert told == [expected] * 2
    assert [info.prefix for info in mc.list_checkpoints(root)] == ["first"]
    assert all(health.ok for health in mc.verify(root))


def test_what_does_not_fit_on_one_rank_changes_none_and_all_raise_the_same(zygote, tmp_path):
    told = zygote.run(f"{SCENES}:fail_on_one", 3, tmp_path / "scene", root=str(tmp_path / "root"))

    assert told[0] == told[1] == told[2]
    assert told[0]["class"] == "StructureMismatch"
    assert told[0]["text"].startswith("rank 2 of 3: ")
    assert told[0]["type"] == "validation_failed"
    assert not told[0]["changed"]


@pytest.mark.parametrize(("mesh", "kinds"), [(False, ["ShardedTensor"]), (True, ["DTensor"])])
def test_states_of_fsdp1_come_back_as_they_were(zygote, tmp_path, mesh, kinds):
    told = zygote.run(f"{SCENES}:fsdp1", 2, tmp_path / "scene", root=str(tmp_path / "root"), mesh=mesh)

    assert told == [kinds] * 2


def test_sharded_tensors_of_fsdp1_go_to_another_number_of_ranks(zygote, tmp_path):
    zygote.run(f"{SCENES}:fsdp1", 2, tmp_path / "two", root=str(tmp_path / "root"), mesh=False)

    numbers = zygote.run(f"{SCENES}:fsdp1_elsewhere", 3, tmp_path / "three", root=str(tmp_path / "root"))

    model = mc.load(tmp_path / "root", parts="model", framework="numpy")["model"]
    assert sum(numbers) == 3 * sum(value.size for value in model.values())  # and two moments of each


@pytest.mark.parametrize(("kind", "world"), [("ddp", 2), ("fsdp", 3), ("fsdp+tp", 4)])
def test_what_get_state_dict_of_torch_gives_is_saved_and_loaded(zygote, tmp_path, kind, world):
    told = zygote.run(f"{SCENES}:dcp_states", world, tmp_path / "scene", root=str(tmp_path / "root"), kind=kind)

    assert told == [["model", "optimizer", "rng"]] * world
