"""Checkpoints as values: what is captured, what is found wrong, what is restored."""

import dataclasses
import math
from datetime import UTC, datetime

import pytest
import torch
from tests.precision.precision_models import assert_same, bits, build, loss_of, options, train, wrap

from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager
from model_checkpoint.precision import (
    MixedPrecisionOptimizer,
    Precision,
    ScalerState,
    Severity,
    StoredWeight,
    check_precision_change,
    from_tree,
    to_tree,
)
from model_checkpoint.precision.checkpoints.weights import same_bits
from model_checkpoint.precision.errors import CheckpointRefused, InvalidArgument, PendingGradients, UnsupportedOptimizer


def errors_of(checkpoint, optimizer=None):
    found = Manager.inspect_checkpoint(checkpoint, optimizer)
    return [finding for finding in found if finding.severity is Severity.ERROR]


def test_everything_is_captured(run):
    _, optimizer = run
    before = datetime.now(UTC)

    checkpoint = Manager.create_checkpoint(optimizer, metadata={"dataset": "words"})

    assert checkpoint.timestamp.tzinfo is UTC
    assert before <= checkpoint.timestamp <= datetime.now(UTC)
    assert set(checkpoint.master_weights) == set(checkpoint.training_weights) == set(optimizer.master_weights)
    assert (checkpoint.step_count, checkpoint.skipped_steps, checkpoint.has_fallback) == (8, 1, False)
    assert checkpoint.current_loss_scale == optimizer.loss_scale
    assert checkpoint.total_overflows == 1
    assert checkpoint.steps_since_last_overflow == optimizer.scaler.steps_since_last_overflow
    assert checkpoint.consecutive_overflows == 0
    assert checkpoint.options == optimizer.options
    assert checkpoint.options is not optimizer.options
    assert checkpoint.base_optimizer_state["kind"] == "AdamW"
    assert checkpoint.performance_stats.step_count == 0


def test_metadata_is_kept_and_system_keys_are_added(checkpoint):
    assert checkpoint.metadata == {"dataset": "words", "precision": "FP16", "version": "1.0"}
    assert checkpoint.version == 1


@pytest.mark.parametrize("key", ["precision", "version"])
def test_a_users_own_system_key_is_refused(run, key):
    with pytest.raises(InvalidArgument, match=rf"metadata: \['{key}'\] are written by the library"):
        Manager.create_checkpoint(run[1], metadata={key: "mine"})


def test_only_known_ways_with_pending_gradients_are_taken(run):
    with pytest.raises(InvalidArgument, match="pending is 'keep', expected 'refuse' or 'save'"):
        Manager.create_checkpoint(run[1], pending="keep")


def test_metadata_keys_of_several_types_are_refused_too(run):
    with pytest.raises(InvalidArgument, match=r"other types at \[1, 'b'\]"):
        Manager.create_checkpoint(run[1], metadata={1: "a", "b": 2})


def test_metadata_must_be_text(run):
    with pytest.raises(InvalidArgument, match=r"metadata: keys and values must be text.*'epochs'"):
        Manager.create_checkpoint(run[1], metadata={"epochs": 3})


def test_none_arguments_are_refused(run, checkpoint):
    with pytest.raises(InvalidArgument, match="optimizer is None"):
        Manager.create_checkpoint(None)
    with pytest.raises(InvalidArgument, match="optimizer is None"):
        Manager.restore_checkpoint(None, checkpoint)
    with pytest.raises(InvalidArgument, match="checkpoint is None"):
        Manager.restore_checkpoint(run[1], None)


def test_an_optimizer_without_parameters_has_nothing_to_capture():
    empty = MixedPrecisionOptimizer(torch.optim.SGD([{"params": []}], lr=0.1))

    with pytest.raises(InvalidArgument, match="has no parameters yet"):
        Manager.create_checkpoint(empty)


def test_a_snapshot_does_not_follow_the_run(run, checkpoint):
    model, optimizer = run
    masters = {name: weight.tensor.clone() for name, weight in checkpoint.master_weights.items()}
    moment = checkpoint.base_optimizer_state["state"]["out.bias"]["exp_avg"].clone()

    train(model, optimizer, range(8, 12))

    assert all(torch.equal(checkpoint.master_weights[name].tensor, value) for name, value in masters.items())
    assert torch.equal(checkpoint.base_optimizer_state["state"]["out.bias"]["exp_avg"], moment)


def test_training_weights_are_derived_and_give_the_true_bytes(run, checkpoint):
    model, _ = run
    stored = checkpoint.training_weights["mix.weight"]

    assert stored.is_derived
    assert (stored.dtype, stored.shape) == (torch.float16, (32, 16))
    assert stored.data == model.mix.weight.detach().numpy().tobytes()
    assert to_tree(checkpoint)["training_explicit"] == {}


def test_a_training_weight_that_is_no_cast_is_stored_by_value_and_comes_back(run):
    model, optimizer = run
    model.mix.weight.data[0, 0] = 0.123

    stored = from_tree(to_tree(Manager.create_checkpoint(optimizer)))
    other = build(seed=2)
    fresh = wrap(other)
    Manager.restore_checkpoint(fresh, stored)

    assert [name for name, one in stored.training_weights.items() if not one.is_derived] == ["mix.weight"]
    assert torch.equal(other.mix.weight, model.mix.weight)
    assert any(f.name == "mix.weight" and f.severity is Severity.WARNING for f in Manager.inspect_checkpoint(stored))


def test_bytes_are_little_endian_and_checked_for_length():
    weight = StoredWeight.of(torch.tensor([[1.0, -2.0]]))

    again = StoredWeight.from_bytes(weight.data, dtype=torch.float32, shape=(1, 2))

    assert weight.data.hex() == "0000803f000000c0"
    assert torch.equal(again.tensor, weight.tensor)
    with pytest.raises(InvalidArgument, match="weight: 7 bytes, expected 8"):
        StoredWeight.from_bytes(weight.data[:7], dtype=torch.float32, shape=(1, 2))


def test_bits_are_compared_not_values():
    assert same_bits(torch.tensor([math.nan]), torch.tensor([math.nan]))
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(torch.ones(2), torch.ones(2).half())


def test_a_state_dict_of_the_base_can_be_given(run):
    _, optimizer = run

    given = Manager.create_checkpoint(optimizer, optimizer.base_optimizer.state_dict())
    own = Manager.create_checkpoint(optimizer)

    assert_same(own.base_optimizer_state["state"], given.base_optimizer_state["state"])
    with pytest.raises(InvalidArgument, match=r"has keys \['moments'\], expected state and param_groups"):
        Manager.create_checkpoint(optimizer, {"moments": 1})


def test_a_base_that_keeps_more_than_torch_knows_is_refused():
    class Odd(torch.optim.SGD):
        def state_dict(self):
            return {**super().state_dict(), "phase": 3}

    optimizer = wrap(build(), lambda p: Odd(p, lr=0.1))

    with pytest.raises(UnsupportedOptimizer, match=r"Odd: its state_dict has \['phase'\]"):
        Manager.create_checkpoint(optimizer)


def test_an_open_window_of_a_shared_scaler_is_refused():
    model, other = build(), build()
    first = wrap(model)
    wrap_second = wrap(other, scaler=first.scaler)
    first.backward(loss_of(model, 0))
    first.step()

    with pytest.raises(PendingGradients, match="share the scaler"):
        Manager.create_checkpoint(first)
    assert not wrap_second.has_fallback


def test_a_sound_checkpoint_is_valid_and_its_tree_too(checkpoint):
    assert Manager.validate_checkpoint(checkpoint) is True
    assert Manager.validate_checkpoint(from_tree(to_tree(checkpoint))) is True
    assert Manager.inspect_checkpoint(checkpoint) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"version": 0}, "version"),
        ({"version": 99}, "version"),
        ({"master_weights": {}}, "master_weights"),
        ({"training_weights": {}}, "embed.weight"),
        ({"options": None}, "options"),
        ({"scaler": ScalerState(scale=math.nan)}, "scaler"),
        ({"counters": {"step_count": 1, "skipped_steps": 2, "bad_losses": 0, "clip_count": 0}}, "counters"),
        ({"version": "1"}, "version"),
        ({"master_weights": None}, "master_weights"),
        ({"training_weights": None}, "embed.weight"),
        ({"training_weights": {"embed.weight": b""}}, "training_weights"),
        ({"scaler": None}, "scaler"),
        ({"fallback": {}}, "fallback"),
        ({"counters": {}}, "counters"),
        ({"base_optimizer_state": {"state": {}}}, "base_optimizer_state"),
        ({"base_optimizer_state": {"kind": "SGD", "state": [], "groups": []}}, "base_optimizer_state"),
        ({"pending": {}}, "pending"),
    ],
)
def test_an_unsound_checkpoint_is_invalid_and_says_where(checkpoint, change, name):
    broken = dataclasses.replace(checkpoint, **change)

    assert Manager.validate_checkpoint(broken) is False
    assert errors_of(broken)[0].name == name


def test_nothing_and_something_else_are_no_checkpoint(run):
    assert Manager.validate_checkpoint(None) is False
    assert Manager.validate_checkpoint("run/checkpoint") is False
    with pytest.raises(InvalidArgument, match="save_checkpoint: checkpoint is a str, expected"):
        Manager.save_checkpoint("state", "folder")
    with pytest.raises(InvalidArgument, match="create_checkpoint: optimizer is a AdamW, expected"):
        Manager.create_checkpoint(run[1].base_optimizer)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (StoredWeight.of(torch.full((32, 16), math.nan)), "NaN or Inf"),
        (StoredWeight.of(torch.zeros(32, 16).half()), "expected torch.float32"),
        (StoredWeight.of(torch.zeros(3)), "training weight has shape"),
    ],
)
def test_a_damaged_master_is_found_by_name(checkpoint, weight, message):
    broken = dataclasses.replace(checkpoint, master_weights={**checkpoint.master_weights, "mix.weight": weight})

    assert any(f.name == "mix.weight" and message in f.message for f in errors_of(broken))


def test_restoring_into_another_model_is_refused_with_names_and_changes_nothing(checkpoint):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    optimizer = wrap(model)
    before = bits(optimizer)

    with pytest.raises(CheckpointRefused, match=r"0.bias: is in the optimizer but not in the checkpoint"):
        Manager.restore_checkpoint(optimizer, checkpoint)

    assert_same(before, bits(optimizer))


def test_a_wrong_shape_is_refused_before_anything_changes(checkpoint):
    model = build()
    model.out = torch.nn.Linear(32, 13)
    optimizer = wrap(model)
    before = bits(optimizer)

    with pytest.raises(CheckpointRefused, match=r"out.bias: has shape \(12,\) in the checkpoint, \(13,\)") as caught:
        Manager.restore_checkpoint(optimizer, checkpoint)

    assert {finding.name for finding in caught.value.findings} == {"out.bias", "out.weight"}
    assert_same(before, bits(optimizer))


def test_another_kind_of_base_is_refused_for_state_but_not_for_weights(checkpoint):
    model = build(seed=3)
    optimizer = wrap(model, lambda p: torch.optim.SGD(p, lr=0.1))

    with pytest.raises(CheckpointRefused, match="is of AdamW, the optimizer is SGD"):
        Manager.restore_checkpoint(optimizer, checkpoint)
    Manager.restore_checkpoint(optimizer, checkpoint, restore_state=False)

    assert torch.equal(optimizer.master_weights["mix.weight"], checkpoint.master_weights["mix.weight"].tensor)
    assert optimizer.step_count == 0


def test_state_alone_leaves_the_weights(checkpoint):
    optimizer = wrap(build(seed=3))
    before = optimizer.master_weights["mix.weight"].clone()

    Manager.restore_checkpoint(optimizer, checkpoint, restore_weights=False)

    assert torch.equal(optimizer.master_weights["mix.weight"], before)
    assert (optimizer.step_count, optimizer.skipped_steps) == (8, 1)
    assert optimizer.loss_scale == checkpoint.current_loss_scale


def test_a_change_of_kernel_threads_or_options_is_a_warning(checkpoint):
    changed = dataclasses.replace(checkpoint, numerics=dataclasses.replace(checkpoint.numerics, threads=64))
    optimizer = wrap(build(), lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True), options(max_grad_norm=0.5))

    findings = Manager.restore_checkpoint(optimizer, changed)

    assert {"kernel", "threads", "options.max_grad_norm"} <= {finding.name for finding in findings}
    assert optimizer.options.max_grad_norm == 0.5


@pytest.mark.parametrize(("before", "after"), [("fp16", "bf16"), ("bf16", "fp16")])
def test_precision_can_change_on_resume(before, after):
    model = build()
    optimizer = wrap(model, chosen=options(before))
    train(model, optimizer, range(10))
    stored = from_tree(to_tree(Manager.create_checkpoint(optimizer)))
    other = build(seed=2)
    fresh = wrap(other, chosen=options(after))

    findings = Manager.restore_checkpoint(fresh, stored)
    losses = train(other, fresh, range(10, 40))

    assert "precision" in {finding.name for finding in findings}
    assert fresh.loss_scale == (1.0 if after == "bf16" else fresh.scaler.state.scale)
    assert after == "bf16" or fresh.scaler.state.scale >= 1024.0
    assert losses[-1] < losses[0]


def test_weights_that_fp16_cannot_hold_are_counted_and_refused():
    model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1e6, 1e-9], [1.0, 2e5]]))
    stored = Manager.create_checkpoint(wrap(model, chosen=options("bf16")))
    fresh = wrap(other)

    report = check_precision_change({"weight": stored.master_weights["weight"].tensor}, Precision.FP16)
    with pytest.raises(CheckpointRefused, match="weight: 2 weights exceed FP16; exclude this layer"):
        Manager.restore_checkpoint(fresh, stored)

    assert (dict(report.overflowing), dict(report.vanishing), report.is_safe) == ({"weight": 2}, {"weight": 1}, False)


def test_the_scaler_restores_itself_from_a_checkpoint(run, checkpoint):
    fresh = wrap(build())

    fresh.scaler.restore_state(checkpoint)

    assert fresh.scaler.state == run[1].scaler.state


def test_extra_state_of_modules_is_said_to_be_left_out(caplog):
    class Remembering(torch.nn.Linear):
        def get_extra_state(self):
            return {"calls": 3}

        def set_extra_state(self, state):
            pass

    optimizer = wrap(Remembering(2, 2))

    Manager.create_checkpoint(optimizer)

    assert "extra state of modules is not kept" in caplog.text
