"""What a class says is nobody's own is kept as rank 0 has it, and is in nobody's way at another number of ranks."""

import numpy as np
import pytest
import torch
from tests.distributed.scenes import network
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.errors import StructureMismatch, UnsupportedType
from model_checkpoint.precision import MixedPrecisionOptimizer, MixedPrecisionOptions

SCENES = "tests.distributed.precision_scenes"


class Clock:
    """What a rank has measured, beside what it computes with."""

    of_rank_zero = ("seen.at", "seen.laps", "nowhere")

    def __init__(self, rank=-1, own=0):
        self.state = {"seen": {"at": f"{rank} o'clock", "laps": [rank] * rank}, "own": own, "w": np.arange(5)}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


@pytest.mark.parametrize("own", [0, 1])  # whether the ranks differ in something else, too
def test_what_is_nobody_s_own_comes_back_as_rank_0_had_it(tmp_path, own):
    all_well(on_ranks(3, lambda c: mc.save(tmp_path, {"a.b": Clock(c.rank, own * c.rank)}, step=1, coordinator=c)))

    clocks = all_well(on_ranks(3, lambda c: mc.load(tmp_path, into={"a.b": Clock()}, coordinator=c)))

    assert [one["a.b"].state["seen"] for one in clocks] == [{"at": "0 o'clock", "laps": []}] * 3
    assert [one["a.b"].state["own"] for one in clocks] == [own * rank for rank in range(3)]
    if not own:
        assert mc.load(tmp_path)["a.b"]["seen"]["at"] == "0 o'clock"
        return
    with pytest.raises(StructureMismatch, match=r"^a%2Eb\.own: the 3 ranks"):
        mc.load(tmp_path)


def test_what_rank_0_does_not_have_is_kept_as_the_first_has_it_that_does(tmp_path):
    def state(rank):
        return {"stage": rank} | ({"clock": Clock(rank)} if rank else {})

    all_well(on_ranks(3, lambda c: mc.save(tmp_path, state(c.rank), step=1, coordinator=c)))

    assert mc.load(tmp_path, parts="clock")["clock"]["seen"] == {"at": "1 o'clock", "laps": [1]}


def test_a_class_that_names_arrays_so_is_told(tmp_path):
    class Wrong(Clock):
        of_rank_zero = ("seen", "w")

    with pytest.raises(
        UnsupportedType, match=r"^run\.clock\.w: its class names it in of_rank_zero, but it holds arrays"
    ):
        mc.save(tmp_path, {"run": {"clock": Wrong()}}, step=1)


def test_an_attribute_of_that_name_of_one_object_says_nothing(tmp_path):
    clock = Clock()
    clock.of_rank_zero = object()

    mc.save(tmp_path, {"clock": clock}, step=1)

    assert mc.load(tmp_path)["clock"]["seen"]["at"] == "-1 o'clock"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(("saved", "others"), [(2, (1, 4)), (4, (2,))])
def test_mixed_precision_goes_on_on_fewer_and_more_ranks_without_a_word(zygote, tmp_path, saved, others):
    arguments = {"root": str(tmp_path)}
    unbroken = zygote.run(f"{SCENES}:save_mixed", saved, tmp_path / "saved", **arguments)
    assert unbroken[0]["skipped"] > 0

    for world in others:
        resumed = zygote.run(f"{SCENES}:resume_mixed", world, tmp_path / str(world), **arguments)
        for one in resumed:
            assert {**one, "measured": 0} == {**unbroken[0], "measured": 0}, world
            assert one["measured"] > unbroken[0]["measured"], world  # what rank 0 had measured is gone on with

    model = network()
    options = MixedPrecisionOptions.for_fp16(enable_performance_monitoring=True)
    optimizer = MixedPrecisionOptimizer(torch.optim.AdamW(model.parameters(), lr=0.1), options, model=model)
    mc.load(tmp_path, into={"model": model, "optimizer": optimizer})
    assert optimizer.get_stats().performance_stats.step_count == 3
