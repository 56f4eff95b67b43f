"""Loading into live objects: all is checked first, no unverified byte gets in, and optimizers keep their dtypes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.ground.stored.stored_files import data_file, flip
from torch import nn

import model_checkpoint as mc
from model_checkpoint import errors


def trained(dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 8, dtype=dtype)).float().square().mean().backward()
        optimizer.step()
    return model, optimizer


def test_parameters_are_filled_in_place_and_keep_their_identity(tmp_path):
    model, optimizer = trained()
    mc.save(tmp_path, {"model": model, "optimizer": optimizer, "epoch": 3}, step=1)
    live, fresh = trained(seed=1)
    pointers = [p.data_ptr() for p in live.parameters()]

    run = mc.load(tmp_path, into={"model": live, "optimizer": fresh, "epoch": 0})

    assert run["epoch"] == 3
    assert [p.data_ptr() for p in live.parameters()] == pointers
    assert all(torch.equal(a, b) for a, b in zip(live.parameters(), model.parameters(), strict=True))


def test_a_fresh_optimizer_is_filled_and_training_goes_on_bit_for_bit(tmp_path):
    model, optimizer = trained()
    mc.save(tmp_path, {"model": model, "optimizer": optimizer}, step=1)
    torch.manual_seed(5)
    live = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    fresh = torch.optim.AdamW(live.parameters(), lr=1.0)

    mc.load(tmp_path, into={"model": live, "optimizer": fresh})
    batch = torch.randn(4, 8)
    for net, opt in ((model, optimizer), (live, fresh)):
        opt.zero_grad()
        net(batch).square().mean().backward()
        opt.step()

    assert fresh.param_groups[0]["lr"] == 1e-2
    assert all(torch.equal(a, b) for a, b in zip(live.parameters(), model.parameters(), strict=True))


def test_fp32_moments_of_bf16_parameters_stay_fp32(tmp_path):
    model, optimizer = trained(torch.bfloat16)
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].float() + 1e-9
    mc.save(tmp_path, {"model": model, "optimizer": optimizer}, step=1)
    live, fresh = trained(torch.bfloat16, seed=1)

    mc.load(tmp_path, into={"model": live, "optimizer": fresh})

    for a, b in zip(optimizer.state.values(), fresh.state.values(), strict=True):
        assert b["exp_avg"].dtype == torch.float32
        assert torch.equal(a["exp_avg"], b["exp_avg"])


def test_version_counters_show_the_change(tmp_path):
    mc.save(tmp_path, {"w": torch.ones(3)}, step=1)
    live = torch.zeros(3)
    before = live._version

    mc.load(tmp_path, into={"w": live})

    assert live._version > before
    assert torch.equal(live, torch.ones(3))


def test_damage_found_midway_lists_what_was_replaced(tmp_path):
    big = {f"t{i}": np.full(2 << 20, i + 1, dtype=np.float32) for i in range(4)}
    mc.save(tmp_path, big, step=1)
    flip(data_file(tmp_path))
    live = {name: np.zeros(2 << 20, dtype=np.float32) for name in big}

    with pytest.raises(errors.PartlyLoaded, match=r"stopped midway.*Already replaced: t0") as caught:
        mc.load(tmp_path, into=live)

    for i, (name, array) in enumerate(live.items()):
        if name in caught.value.replaced:
            assert np.array_equal(array, big[name])
        elif name not in caught.value.partial:
            assert not array.any(), i
        else:
            assert set(np.unique(array)) <= {0.0, i + 1.0}


def test_what_was_replaced_has_the_names_of_the_live_leaves(tmp_path):
    first = torch.ones(2 << 20)
    mc.save(tmp_path, {"old": {"a": first, "tied": first, "z": torch.ones(4 << 20)}}, step=1)
    flip(data_file(tmp_path))
    live = torch.zeros(2 << 20)

    with pytest.raises(errors.PartlyLoaded, match=r"lists all damage\. Already replaced: ") as caught:
        mc.load(tmp_path, into={"new": {"a": live, "tied": live, "z": torch.zeros(4 << 20)}}, rename={"old": "new"})

    touched = {*caught.value.replaced, *caught.value.partial}
    assert touched in ({"new.a", "new.tied", "new.z"}, {"new.a", "new.tied"}, {"new.z"})


def test_atomic_changes_all_or_nothing(tmp_path):
    model, optimizer = trained()
    good = mc.save(tmp_path, {"model": model, "optimizer": optimizer, "n": 1}, step=1)
    bad = mc.save(tmp_path, {"model": model, "optimizer": optimizer, "n": 2}, step=2)
    flip(data_file(tmp_path, bad.step))
    live, other = trained(seed=1)
    into = {"model": live, "optimizer": other, "n": 0}
    before = [p.detach().clone() for p in live.parameters()]

    with pytest.raises(errors.ChunkMismatch, match="recorded digest"):
        mc.load(tmp_path, into=into, atomic=True)
    unchanged = all(torch.equal(a, b) for a, b in zip(live.parameters(), before, strict=True))
    mc.load(tmp_path, into=into, atomic=True, step=good.step)

    assert unchanged
    assert into["n"] == 1
    assert all(torch.equal(a, b) for a, b in zip(live.parameters(), model.parameters(), strict=True))


def test_fallback_fills_the_live_objects_from_the_older_checkpoint(tmp_path):
    mc.save(tmp_path, {"w": np.ones(3 << 20)}, step=1)
    mc.save(tmp_path, {"w": np.full(3 << 20, 2.0)}, step=2)
    flip(data_file(tmp_path, 2))
    live = {"w": np.zeros(3 << 20)}

    with pytest.warns(mc.CheckpointWarning, match="step-00000002: ChunkMismatch, .*tensor w"):
        mc.load(tmp_path, into=live, fallback=True)

    assert np.array_equal(live["w"], np.ones(3 << 20))


def test_some_parts_only(tmp_path):
    model, optimizer = trained()
    mc.save(tmp_path, {"model": model, "optimizer": optimizer}, step=1)
    live, _ = trained(seed=1)

    mc.load(tmp_path, into={"model": live}, parts="model")

    assert all(torch.equal(a, b) for a, b in zip(live.parameters(), model.parameters(), strict=True))
    assert list(mc.load(tmp_path, parts=["model.0.*"])["model"]) == ["0.weight", "0.bias"]


def test_not_strict_loads_what_both_sides_have(tmp_path, caplog):
    mc.save(tmp_path, {"a": torch.ones(2), "b": torch.ones(2)}, step=1)
    live = {"a": torch.zeros(2), "c": torch.zeros(2)}

    with pytest.warns(mc.CheckpointWarning, match="left as it was: c(.|\n)*not loaded: b"):
        mc.load(tmp_path, into=live, strict=False)

    assert torch.equal(live["a"], torch.ones(2))
    assert torch.equal(live["c"], torch.zeros(2))
    assert "in the checkpoint, not loaded: b" in caplog.text


def test_other_frameworks_and_devices(tmp_path):
    mc.save(tmp_path, {"w": torch.arange(4.0, dtype=torch.bfloat16), "n": np.arange(3)}, step=1)

    as_numpy = mc.load(tmp_path, framework="numpy")
    as_torch = mc.load(tmp_path, framework="torch", device="cpu")

    assert str(as_numpy["w"].dtype) == "bfloat16"
    assert isinstance(as_torch["n"], torch.Tensor)


def test_rng_state_resumes_every_generator(tmp_path):
    import random

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    mc.save(tmp_path, {"rng": mc.rng_state()}, step=1)
    expected = (random.random(), np.random.rand(), torch.rand(1).item())
    random.seed(2), np.random.seed(2), torch.manual_seed(2)

    mc.load(tmp_path, into={"rng": mc.rng_state()})

    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected


def test_a_live_object_the_checkpoint_has_nothing_for_is_missing(tmp_path):
    model, optimizer = trained()
    mc.save(tmp_path, {"model": model}, step=1)

    with pytest.raises(errors.StructureMismatch, match="missing: optimizer"):
        mc.load(tmp_path, into={"model": model, "optimizer": optimizer})


def test_renamed_parts_find_their_live_objects(tmp_path):
    model, _ = trained()
    mc.save(tmp_path, {"net": model}, step=1)
    live, _ = trained(seed=1)

    mc.load(tmp_path, into={"model": live}, rename={"net": "model"})

    assert all(torch.equal(a, b) for a, b in zip(live.parameters(), model.parameters(), strict=True))


def test_a_tensor_that_is_given_other_memory_during_a_load_lets_nobody_else_be_overwritten(tmp_path: Path) -> None:
    mc.save(tmp_path, {str(i): torch.ones(4096) for i in range(2000)}, step=1)
    live = {str(i): torch.zeros(4096) for i in range(2000)}
    bystanders: list[torch.Tensor] = []

    def swap(_: object) -> None:
        if not bystanders:
            for tensor in live.values():
                tensor.data = torch.empty(0)
            bystanders.extend(
                torch.zeros(4096) for _ in range(2000)
            )  # they lie where the others did, if those are gone

    mc.load(tmp_path, into=live, progress=swap)
    assert not any(tensor.any() for tensor in bystanders)
