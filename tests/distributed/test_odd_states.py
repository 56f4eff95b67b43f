"""States that ranks may not save, and one that is less odd than it looks."""

import secrets

import pytest
import torch
from tests.distributed.threads import all_well, on_ranks, told
from tests.precision.precision_models import assert_same, bits, build, train, wrap

import model_checkpoint as mc
from model_checkpoint.engine.ranks import words
from model_checkpoint.errors import LimitExceeded

SCENES = "tests.distributed.scenes"


@pytest.mark.slow
@pytest.mark.distributed
def test_sums_not_taken_yet_and_shapes_that_no_layout_explains_are_refused_on_all_ranks(zygote, tmp_path):
    outcomes = zygote.run(f"{SCENES}:save_odd_tensors", 2, tmp_path / "scene", root=str(tmp_path))

    for sums, shapes, strided in outcomes:
        assert "a Partial DTensor holds sums that were not taken yet" in sums
        assert "however they are read" in shapes
        assert "however they are read" in strided
    assert outcomes[0] == outcomes[1]
    assert mc.list_checkpoints(tmp_path) == []


def test_a_rank_that_has_too_much_to_tell_is_named_by_all(tmp_path, monkeypatch):
    monkeypatch.setattr(words, "LONGEST_WORD", 20_000)

    def save(ranks):
        own = {str(i): secrets.token_hex(32) for i in range(1000 if ranks.rank == 1 else 1)}
        mc.save(tmp_path, {"own": own}, step=1, coordinator=ranks)

    error = told(on_ranks(3, save))

    assert isinstance(error, LimitExceeded)
    assert str(error).startswith("rank 1 of 3: what this rank has of its own takes ")
    assert mc.list_checkpoints(tmp_path) == []


def test_an_optimizer_of_mixed_precision_and_its_masters_are_parts_like_any_other(tmp_path):
    def make(seed):
        model = build(seed)
        return {"model": model, "optimizer": wrap(model)}

    source = make(0)
    train(source["model"], source["optimizer"], range(6), spoil={3})
    states = [source, make(0)]
    train(states[1]["model"], states[1]["optimizer"], range(6), spoil={3})
    all_well(on_ranks(2, lambda ranks: mc.save(tmp_path, states[ranks.rank], step=6, coordinator=ranks)))

    def load(ranks):
        fresh = make(5 + ranks.rank)
        mc.load(tmp_path, into=fresh, coordinator=ranks)
        return fresh

    for fresh in all_well(on_ranks(3, load)):
        assert_same(bits(source["optimizer"]), bits(fresh["optimizer"]))
    masters = mc.load(tmp_path, parts="optimizer.mixed_precision.master")["optimizer"]["mixed_precision"]["master"]
    assert torch.equal(masters["mix.weight"], source["optimizer"].master_weights["mix.weight"])
