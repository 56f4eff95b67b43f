"""Checkpoints at their limits: what is just sound, what a restore adapts, and what old files and foreign bytes mean."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
from tests.precision.precision_golden import first_layout
from tests.precision.precision_models import build, loss_of, options, train, wrap

from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager
from model_checkpoint.precision import from_tree
from model_checkpoint.precision.checkpoints import weights
from model_checkpoint.precision.checkpoints.checkpoint import PendingWindow
from model_checkpoint.precision.checkpoints.fit_check import adapt_scaler
from model_checkpoint.precision.checkpoints.tree_codec import migrate
from model_checkpoint.precision.checkpoints.weights import StoredWeight

COUNTS = ("step_count", "skipped_steps", "bad_losses", "clip_count")


def with_counts(checkpoint, counts, *, overflows=0):
    scaler = dataclasses.replace(checkpoint.scaler, consecutive_overflows=0, total_overflows=overflows)
    return dataclasses.replace(checkpoint, counters=dict(zip(COUNTS, counts, strict=True)), scaler=scaler)


@pytest.mark.parametrize(
    ("counts", "overflows", "sound"),
    [
        ((9, 0, 0, 0), 0, True),
        ((9, 9, 9, 0), 9, True),
        ((9, 9, 9, 9), 0, True),
        ((9, 10, 0, 0), 0, False),
        ((9, 2, 3, 0), 0, False),
        ((9, 2, 0, 0), 3, False),
        ((9, 2, 0, -1), 0, False),
    ],
)
def test_counts_are_sound_up_to_what_can_have_happened(checkpoint, counts, overflows, sound):
    found = Manager.inspect_checkpoint(with_counts(checkpoint, counts, overflows=overflows))

    assert ([f.name for f in found if f.severity.value == "error"] == []) is sound


@pytest.mark.parametrize(
    ("scale", "sound"), [(0.5, True), (1, True), (0.0, False), (math.inf, False), (math.nan, False), ("1", False)]
)
def test_the_scale_of_pending_gradients_is_a_finite_number_above_zero(checkpoint, scale, sound):
    pending = PendingWindow(scale=scale, losses_finite=True, gradients={})

    assert Manager.validate_checkpoint(dataclasses.replace(checkpoint, pending=pending)) is sound


def with_state(checkpoint, **entries):
    base = checkpoint.base_optimizer_state
    state = {**base["state"], "mix.weight": {**base["state"]["mix.weight"], **entries}}
    return dataclasses.replace(checkpoint, base_optimizer_state={**base, "state": state})


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({"step": torch.tensor(7.0)}, False),  # eight steps, one of them skipped
        ({"step": torch.tensor(8.0)}, True),
        ({"step": torch.tensor([8.0])}, True),
        ({"step": torch.tensor([8.0, 9.0])}, False),  # whatever that counts
        ({"step": 8}, False),
        ({"order": torch.arange(3)}, False),
        ({"note": torch.tensor([math.inf])}, False),
        ({"note": torch.tensor([math.nan])}, True),
    ],
)
def test_odd_values_in_the_state_of_a_base_are_told_only_where_they_matter(checkpoint, entries, told):
    assert ([f.name for f in Manager.inspect_checkpoint(with_state(checkpoint, **entries))] == ["mix.weight"]) is told


def test_moments_of_a_foreign_base_may_have_any_shape(checkpoint):
    odd = with_state(checkpoint, exp_avg=torch.zeros(3))

    assert not Manager.validate_checkpoint(odd)
    foreign = {**odd.base_optimizer_state, "kind": "Homemade"}
    assert Manager.validate_checkpoint(dataclasses.replace(odd, base_optimizer_state=foreign))


@pytest.mark.parametrize(
    ("stored", "changes", "adapted"),
    [
        ({"growth_tracker": 5, "steps_since_overflow": 5}, {"growth_interval": 6}, {"growth_tracker": 5}),
        ({"growth_tracker": 5, "steps_since_overflow": 5}, {"growth_interval": 5}, {"growth_tracker": 4}),
        ({"hysteresis_left": 3}, {"hysteresis": 2}, {"hysteresis_left": 2}),
        ({"hysteresis_left": 1}, {"hysteresis": 2}, {"hysteresis_left": 1}),
        ({"scale": 64.0}, {"min_loss_scale": 128.0}, {"scale": 128.0}),
        ({"scale": 64.0}, {"max_loss_scale": 32.0, "initial_loss_scale": 8.0}, {"scale": 32.0}),
        ({"scale": 64.0}, {}, {"scale": 64.0}),
    ],
)
def test_a_scaler_continues_within_the_limits_of_the_new_options(checkpoint, stored, changes, adapted):
    scaler = dataclasses.replace(checkpoint.scaler, **stored)

    got = adapt_scaler(dataclasses.replace(checkpoint, scaler=scaler), wrap(build(), chosen=options(**changes)))

    assert got == dataclasses.replace(scaler, **adapted)


def test_a_scaler_that_has_to_be_adapted_is_told(run, checkpoint):
    narrower = wrap(build(), chosen=options(max_loss_scale=64.0, initial_loss_scale=8.0))

    (told,) = [f for f in Manager.inspect_checkpoint(checkpoint, narrower) if f.name == "scaler"]

    assert told.message.startswith("continues as ScalerState(scale=64.0, ")
    assert "scaler" not in {f.name for f in Manager.inspect_checkpoint(checkpoint, run[1])}


@pytest.mark.parametrize(
    ("scale", "target", "adapted"),
    [
        (1.0, options("fp16"), 1024.0),
        (1.0, options("bf16", initial_loss_scale=4.0), 1.0),
        (2.0, options("fp16"), 2.0),  # it has served, before the run went to BF16
    ],
)
def test_only_a_scale_that_never_served_gives_way_to_the_initial_one(scale, target, adapted):
    stored = Manager.create_checkpoint(wrap(build(), chosen=options("bf16")))
    stored = dataclasses.replace(stored, scaler=dataclasses.replace(stored.scaler, scale=scale))

    assert adapt_scaler(stored, wrap(build(), chosen=target)).scale == adapted


@pytest.mark.parametrize("fallen", [False, True])
def test_a_tree_of_layout_1_says_all_it_knows_in_the_newest_one(run, fallen):
    tree = {**first_layout(run[1]), "steps_since_last_overflow": 9, "has_fallback": fallen}

    now = migrate(tree)

    assert (now["layout"], now["version"], now["metadata"]["version"]) == (3, 1, "1.0")
    assert now["counters"] == {"step_count": 8, "skipped_steps": 1, "bad_losses": 0, "clip_count": 0}
    assert now["scaler"] == {
        "scale": 512.0, "growth_tracker": 2, "hysteresis_left": 1, "steps_since_overflow": 9,
        "consecutive_overflows": 0, "total_overflows": 1, "floor_hits": 0,
    }  # fmt: skip
    mode = {"mode": "fp32", "attempts": 1} if fallen else {"mode": "low", "attempts": 0}
    assert now["fallback"] == {
        "groups": [{**mode, "clean_steps": 0, "offences": 0}], "streak": 0, "fp32_failures": 0,
    }  # fmt: skip


def test_a_tree_of_layout_1_without_training_weights_derives_them_all(run):
    tree = {**first_layout(run[1]), "training_weights": None}

    stored = from_tree(tree)

    assert {weight.dtype for weight in stored.training_weights.values()} == {torch.float16}
    assert all(weight.is_derived for weight in stored.training_weights.values())
    assert set(stored.training_weights) == set(stored.master_weights)


def test_a_tree_that_is_something_else_is_refused_with_five_of_its_keys():
    with pytest.raises(ValueError, match=r"it holds \['a', 'b', 'c', 'd', 'e'\]\. "):
        from_tree(dict.fromkeys("gfedcba"))


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (torch.tensor([1.0, 2.0], dtype=torch.float16), "3c004000"),
        (torch.tensor([1.0, -2.0]), "3f800000c0000000"),
        (torch.tensor([1, 2, 3], dtype=torch.uint8), "010203"),
        (torch.empty(0), ""),
    ],
)
def test_bytes_are_turned_where_a_machine_keeps_them_the_other_way_round(values, stored, monkeypatch):
    """Seen from here, such a machine writes backwards what lies forwards in memory."""
    monkeypatch.setattr(weights, "sys", SimpleNamespace(byteorder="big"))

    assert StoredWeight.of(values).data.hex() == stored
    back = StoredWeight.from_bytes(bytes.fromhex(stored), dtype=values.dtype, shape=tuple(values.shape))
    assert torch.equal(back.tensor, values)


def test_state_that_a_checkpoint_does_not_have_is_forgotten_by_a_restore(run):
    _, optimizer = run
    fresh = Manager.create_checkpoint(wrap(build()))

    Manager.restore_checkpoint(optimizer, fresh)

    assert not optimizer.base_optimizer.state


@pytest.mark.parametrize(("before", "now"), [(0.1, torch.tensor(0.2)), (torch.tensor(0.1), 0.2)])
def test_a_learning_rate_may_be_a_tensor_on_one_side_only(before, now):
    def optimizer(rate):
        return wrap(build(), lambda p: torch.optim.AdamW(p, lr=rate))

    live = optimizer(now)
    live.base_optimizer.param_groups[0]["milestones"] = [1]
    stored = optimizer(before)
    stored.base_optimizer.param_groups[0]["milestones"] = [1, 2]

    Manager.restore_checkpoint(live, Manager.create_checkpoint(stored))

    (group,) = live.base_optimizer.param_groups
    assert (type(group["lr"]), live.learning_rate) == (type(before), pytest.approx(0.1))
    assert (group["milestones"], group["betas"]) == ([1, 2], (0.9, 0.999))


@pytest.mark.parametrize(("seconds", "kept"), [(50, 1), (70, 0)])
def test_a_replaced_checkpoint_leaves_the_disk_a_minute_after_it_was_replaced(run, tmp_path, seconds, kept):
    checkpoint = Manager.create_checkpoint(run[1])
    for _ in range(2):
        Manager.save_checkpoint(checkpoint, tmp_path)
    (replaced,) = (tmp_path / ".trash").iterdir()
    name, when, clock, rest = replaced.name.split("~")
    boot, _, since = clock.rpartition(".")  # by which the age is told as long as the machine is up
    clock = f"{boot}.{int(since) - seconds * 1000}"
    older = replaced.rename(replaced.with_name(f"{name}~{int(when) - seconds * 10**9}~{clock}~{rest}"))

    Manager.save_checkpoint(checkpoint, tmp_path)

    assert older.exists() == bool(kept)


def test_gradients_left_over_are_gone_after_a_restore(run):
    model, optimizer = run
    checkpoint = Manager.create_checkpoint(optimizer)
    optimizer.zero_grad()
    optimizer.backward(loss_of(model, 9))

    Manager.restore_checkpoint(optimizer, checkpoint)

    assert all(parameter.grad is None for parameter in model.parameters())
    assert optimizer.session.find_pending() == []
    optimizer.scale_loss(loss_of(model, 9) * math.nan)
    Manager.restore_checkpoint(optimizer, checkpoint)
    train(model, optimizer, range(8, 9))
    assert optimizer.last_result.applied
