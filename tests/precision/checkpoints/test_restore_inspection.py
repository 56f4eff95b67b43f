"""What a restore finds out before it changes anything: moments, pending gradients, precisions, untrained weights."""

import dataclasses
import math

import pytest
import torch
from tests.precision.precision_models import assert_same, bits, build, loss_of, options, train, wrap

from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager
from model_checkpoint.precision import MixedPrecisionOptimizer, Precision
from model_checkpoint.precision.checkpoints.preflight import check_precision_change
from model_checkpoint.precision.checkpoints.self_check import _is_base, error, summarise
from model_checkpoint.precision.errors import CheckpointRefused, InvalidArgument


def refuse_and_keep(optimizer, checkpoint, match, **chosen):
    before = bits(optimizer)
    with pytest.raises(CheckpointRefused, match=match):
        Manager.restore_checkpoint(optimizer, checkpoint, **chosen)
    assert_same(before, bits(optimizer))


@pytest.fixture
def run():
    model = build()
    optimizer = wrap(model)
    train(model, optimizer, range(5))
    return model, optimizer


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        (torch.zeros(2, 2), r"mix.weight: exp_avg has shape \(2, 2\), its master \(32, 16\)"),
        (torch.full((32, 16), math.nan), "mix.weight: exp_avg holds NaN"),
    ],
)
def test_a_moment_that_would_break_the_next_step_is_refused_by_name(run, moment, message):
    _, optimizer = run
    checkpoint = Manager.create_checkpoint(optimizer)
    checkpoint.base_optimizer_state["state"]["mix.weight"]["exp_avg"] = moment

    assert Manager.validate_checkpoint(checkpoint) is False
    refuse_and_keep(optimizer, checkpoint, message)


def test_what_is_not_sound_is_not_compared_with_an_optimizer(run):
    checkpoint, other = Manager.create_checkpoint(run[1]), wrap(build(width=8))
    assert len(Manager.inspect_checkpoint(checkpoint, other)) > 1
    checkpoint.base_optimizer_state["state"]["mix.weight"]["exp_avg"] = torch.zeros(2, 2)

    findings = Manager.inspect_checkpoint(checkpoint, other)

    assert [one.name for one in findings] == ["mix.weight"]
    assert findings == Manager.inspect_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gradients": {"nowhere": torch.ones(1)}}, "nowhere: has a pending gradient but no master"),
        ({"gradients": {"mix.bias": torch.ones(1)}}, r"mix.bias: pending gradient has shape \(1,\)"),
        ({"scale": math.inf}, "pending: scale is inf"),
    ],
)
def test_pending_gradients_that_do_not_fit_are_refused_by_name(run, change, message):
    model, optimizer = run
    optimizer.zero_grad()
    optimizer.backward(loss_of(model, 9))
    checkpoint = Manager.create_checkpoint(optimizer, pending="save")

    broken = dataclasses.replace(checkpoint, pending=dataclasses.replace(checkpoint.pending, **change))

    assert Manager.validate_checkpoint(broken) is False
    refuse_and_keep(optimizer, broken, message)


def test_half_pending_gradients_are_widened_but_never_cast_to_another_half():
    model = build()
    optimizer = wrap(model, chosen=options(accumulate_in_fp32=False))
    optimizer.backward(loss_of(model, 0))
    checkpoint = Manager.create_checkpoint(optimizer, pending="save")
    wide, narrow = (
        wrap(build(1), chosen=options("bf16")),
        wrap(build(1), chosen=options("bf16", accumulate_in_fp32=False)),
    )

    Manager.restore_checkpoint(wide, checkpoint)

    refuse_and_keep(narrow, checkpoint, "pending gradient is torch.float16, torch.bfloat16 here")
    assert wide.parameter_table.by_name["mix.weight"].param.grad.dtype == torch.float32
    result = wide.step()
    assert (result.applied, result.scale_used) == (True, 1024.0)


def test_half_pending_gradients_are_widened_where_a_layer_trains_in_fp32():
    half = {"accumulate_in_fp32": False}
    model = build()
    optimizer = wrap(model, chosen=options(**half))
    optimizer.backward(loss_of(model, 0))
    checkpoint = Manager.create_checkpoint(optimizer, pending="save")
    other = wrap(build(1), chosen=options(**half, fp32_layer_patterns=("LayerNorm", "^mix$")))

    Manager.restore_checkpoint(other, checkpoint)

    slots = other.parameter_table.by_name
    assert [slots[f"{layer}.weight"].param.grad.dtype for layer in ("mix", "out")] == [torch.float32, torch.float16]


def test_a_base_state_without_its_parts_is_refused(run):
    _, optimizer = run
    checkpoint = Manager.create_checkpoint(optimizer)
    for part in ("kind", "state", "groups"):
        lacking = {key: value for key, value in checkpoint.base_optimizer_state.items() if key != part}

        refuse_and_keep(
            optimizer, dataclasses.replace(checkpoint, base_optimizer_state=lacking), "base_optimizer_state"
        )


def linear(large=()):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    for place in large:
        torch.nn.init.constant_(model[place].weight, 70000.0)
    return model


def test_weights_alone_out_of_a_fallback_are_refused_where_half_cannot_hold_them():
    optimizer, fresh = wrap(linear()), wrap(linear())
    optimizer.fallback_to_fp32()
    optimizer.set_parameters({name: torch.full_like(value, 7e4) for name, value in optimizer.master_weights.items()})
    checkpoint = Manager.create_checkpoint(optimizer)

    refuse_and_keep(fresh, checkpoint, "0.weight: 4 weights exceed FP16", restore_state=False)
    Manager.restore_checkpoint(fresh, checkpoint)

    assert_same(bits(optimizer), bits(fresh))


def test_an_excluded_layer_may_exceed_fp16_when_the_precision_changes():
    patterns = {"fp32_layer_patterns": ("^0$",)}
    checkpoint = Manager.create_checkpoint(wrap(linear(large=[0]), chosen=options("bf16", **patterns)))
    model = linear()

    findings = Manager.restore_checkpoint(wrap(model, chosen=options(**patterns)), checkpoint)

    assert "precision" in {finding.name for finding in findings}
    assert model[0].weight.tolist() == [[70000.0] * 2] * 2


def test_a_run_whose_half_weight_became_inf_is_resumed_as_it_was():
    optimizer, fresh = wrap(linear()), wrap(linear())
    slot = optimizer.parameter_table.by_name["0.weight"]
    with torch.no_grad():
        slot.master.fill_(70000.0)
    slot.cast_down()

    Manager.restore_checkpoint(fresh, Manager.create_checkpoint(optimizer))

    assert torch.isinf(fresh.training_weights["0.weight"]).all()
    assert_same(bits(optimizer), bits(fresh))


def test_a_layer_that_will_train_in_another_precision_is_named():
    optimizer = wrap(linear())
    optimizer.manager.exclude_layers_matching("^1$")
    optimizer.sync_from_model()
    checkpoint = Manager.create_checkpoint(optimizer)

    findings = Manager.restore_checkpoint(wrap(linear()), checkpoint)

    assert [str(one) for one in findings] == [
        f"warning: 1.{name}: was trained in FP32, will be in FP16: exclusions or modes differ"
        for name in ("weight", "bias")
    ]


def frozen(precision, value=0.1):
    model = linear()
    torch.nn.init.constant_(model[0].weight, value)
    model[0].requires_grad_(False)
    return model, wrap(model, lambda _: torch.optim.SGD(model[1].parameters(), lr=0.1), options(precision))


def test_frozen_weights_that_lose_bits_are_named_as_they_have_no_master():
    checkpoint = Manager.create_checkpoint(frozen("fp16")[1])

    findings = Manager.restore_checkpoint(frozen("bf16")[1], checkpoint)

    assert "0.weight: is not trained and has no master: 4 values are rounded to torch.bfloat16" in {
        f"{one.name}: {one.message}" for one in findings
    }


def test_frozen_weights_that_become_inf_are_refused():
    checkpoint = Manager.create_checkpoint(frozen("bf16", value=1e6)[1])

    refuse_and_keep(frozen("fp16")[1], checkpoint, "0.weight: holds weights that exceed torch.float16")


def test_frozen_weights_of_a_fallen_module_come_back_without_a_finding():
    def make(seed):
        model = build(seed)
        model.mix.weight.requires_grad_(False)
        rest = [one for one in model.parameters() if one.requires_grad]
        return model, wrap(model, lambda _: torch.optim.SGD(rest, lr=0.1))

    (model, optimizer), (other, fresh) = make(0), make(3)
    optimizer.fallback_to_fp32()
    torch.nn.init.normal_(model.mix.weight)

    findings = Manager.restore_checkpoint(fresh, Manager.create_checkpoint(optimizer))

    assert findings == []
    assert torch.equal(other.mix.weight, model.mix.weight)


def test_a_buffer_of_another_kind_is_refused(run):
    _, optimizer = run
    checkpoint = Manager.create_checkpoint(optimizer)
    other = build(2)
    other.seen = other.seen.float()

    refuse_and_keep(wrap(other), checkpoint, "seen: is torch.int64 in the checkpoint, torch.float32 in the model")


TOO_LARGE = r"weight: holds 70000, but torch.float16 ends at 65504 and would make it Inf"


@pytest.mark.parametrize("trained", [0, 1])
def test_a_model_with_weights_half_would_make_inf_is_refused_and_left_as_it_is(trained):
    model = linear(large=[1])

    with pytest.raises(InvalidArgument, match=TOO_LARGE):
        wrap(model, lambda _: torch.optim.SGD(model[trained].parameters(), lr=0.1))

    assert model[1].weight.tolist() == [[70000.0] * 2] * 2
    assert wrap(model, chosen=options(fp32_layer_patterns=("1",))).training_weights["1.weight"].dtype == torch.float32


def test_an_added_group_half_would_make_inf_changes_nothing():
    model, extra = linear(), torch.nn.Parameter(torch.full((2,), 70000.0))
    optimizer = wrap(model)

    with pytest.raises(InvalidArgument, match=r"holds 70000, but torch.float16"):
        optimizer.add_param_group({"params": [extra]})

    assert (len(optimizer.param_groups), extra.dtype, "group1.param0" in optimizer.master_weights) == (
        1,
        torch.float32,
        False,
    )
    train_once = optimizer.scale_loss(model(torch.ones(1, 2)).sum())
    train_once.backward()
    assert optimizer.step().applied


def test_values_by_name_half_would_make_inf_are_refused_before_the_first_is_written():
    large = {"v": torch.ones(2), "w": torch.full((2,), 70000.0)}
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD([{"params": []}], lr=0.1), options())

    with pytest.raises(InvalidArgument, match="w: holds 70000"):
        optimizer.set_parameters(large)
    assert optimizer.master_weights == {}
    optimizer.set_parameters({name: torch.zeros(2) for name in large})
    with pytest.raises(InvalidArgument, match="w: holds 70000"):
        optimizer.set_parameters(large)

    assert optimizer.master_weights["v"].tolist() == [0.0, 0.0]


def test_five_findings_are_told_and_of_more_how_many():
    findings = [error(f"w{number}", "is missing") for number in range(6)]

    assert summarise(findings[:5]) == "; ".join(f"w{number}: is missing" for number in range(5))
    assert summarise(findings) == f"{summarise(findings[:5])}; and 1 more"


def test_only_numbers_that_become_zero_vanish():
    found = check_precision_change({"w": torch.tensor([0.0, 1e-9, 1.0, 2.0]), "v": torch.ones(3)}, Precision.FP16)

    assert (found.vanishing, found.overflowing) == ({"w": 1}, {})


@pytest.mark.parametrize("group", [3, {"values": 3, "params": []}, {"values": {}}, {"params": []}])
def test_a_group_without_values_or_parameters_is_no_group(group):
    good = {"values": {}, "params": []}

    assert _is_base({"kind": "Adam", "state": {}, "groups": [good]})
    assert not _is_base({"kind": "Adam", "state": {}, "groups": [good, group]})


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (torch.tensor(5.0), False),
        (torch.tensor(6.0), True),
        (torch.tensor([6.0]), True),
        (torch.tensor([6.0, 6.0]), False),  # no counter of one parameter
        (6, False),
    ],
)
def test_a_weight_that_was_stepped_oftener_than_the_run_is_told(run, step, told):
    checkpoint = Manager.create_checkpoint(run[1])
    checkpoint.base_optimizer_state["state"]["mix.weight"]["step"] = step

    findings = [str(one) for one in Manager.inspect_checkpoint(checkpoint)]

    assert any("mix.weight" in one and "was stepped 6 times, the run applied 5" in one for one in findings) is told
    assert len(findings) == told


@pytest.mark.parametrize("live", [0.5, torch.tensor(0.5)])
@pytest.mark.parametrize("stored", [0.25, torch.tensor(0.25)])
def test_a_learning_rate_comes_back_as_what_it_was_saved_and_a_tensor_that_is_held_stays(live, stored):
    first, second = (
        wrap(
            build(), lambda p, lr=lr: torch.optim.Adam(p, lr=lr, foreach=False, capturable=isinstance(lr, torch.Tensor))
        )
        for lr in (stored, live)
    )
    held, checkpoint = second.param_groups[0]["lr"], Manager.create_checkpoint(first)

    Manager.restore_checkpoint(second, checkpoint)

    rate = second.param_groups[0]["lr"]
    assert type(rate) is type(stored)
    assert float(rate) == 0.25
    if isinstance(live, torch.Tensor) and isinstance(stored, torch.Tensor):
        assert rate is held
    elif isinstance(stored, torch.Tensor):
        rate += 1
        assert float(checkpoint.base_optimizer_state["groups"][0]["values"]["lr"]) == 0.25
