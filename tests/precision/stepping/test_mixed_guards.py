"""What the optimizer keeps right or refuses: schedulers, closures, weights changed behind its back."""

import copy
import math
import warnings

import pytest
import torch
from tests.precision.precision_models import build, loss_of, options, train, wrap

from model_checkpoint.errors import CorruptedCheckpoint
from model_checkpoint.precision import MixedPrecisionOptimizer, StepReason
from model_checkpoint.precision.errors import (
    InvalidArgument,
    PendingGradients,
    StepRefused,
    UnsupportedOptimizer,
    WeightsChanged,
)


def test_clipping_by_default_is_said_in_the_first_line_of_the_docstring():
    first = MixedPrecisionOptimizer.__doc__.splitlines()[0]

    assert "clips gradients to norm 1.0 unless" in first


def test_a_torch_that_does_not_tell_which_wrapper_runs_is_no_harm(monkeypatch):
    monkeypatch.delattr(torch.nn.parallel.DistributedDataParallel, "_get_active_ddp_module")
    model = build()
    optimizer = wrap(model)

    train(model, optimizer, range(2))

    assert optimizer.skipped_steps == 0


def test_a_torch_optimizer_in_every_sense():
    model = build()
    optimizer = wrap(model)

    assert isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.param_groups is optimizer.base_optimizer.param_groups
    assert optimizer.state is optimizer.base_optimizer.state
    assert optimizer.defaults is optimizer.base_optimizer.defaults


@pytest.mark.parametrize("order", ["before", "after on base", "after on wrapper"])
def test_schedulers_made_anywhere_drive_the_learning_rate_without_warnings(order):
    model = build()
    base = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(base, 1, 0.5) if order == "before" else None
    optimizer = MixedPrecisionOptimizer(base, options(), model=model)
    if scheduler is None:
        scheduler = torch.optim.lr_scheduler.StepLR(base if "base" in order else optimizer, 1, 0.5)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(3):
            train(model, optimizer, [step])
            scheduler.step()

    assert optimizer.learning_rate == 0.125
    assert base.param_groups[0]["lr"] == 0.125


def test_an_added_scheduler_rests_while_steps_are_skipped():
    model = build()
    optimizer = wrap(model)
    scheduler = optimizer.add_scheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))

    for step in range(4):
        train(model, optimizer, [step], spoil={1, 2})
        scheduler.step()

    assert optimizer.skipped_steps == 2
    assert optimizer.learning_rate == pytest.approx(1e-2 * 0.25)


def test_a_metric_scheduler_cannot_be_held():
    optimizer = wrap(build())

    with pytest.raises(InvalidArgument, match="ReduceLROnPlateau follows a metric"):
        optimizer.add_scheduler(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))


def test_stepping_the_base_directly_is_refused():
    optimizer = wrap(build())

    with pytest.raises(StepRefused, match=r"AdamW.step\(\): this optimizer holds FP32 masters"):
        optimizer.base_optimizer.step()


def test_groups_and_zeroing_of_the_base_directly_are_refused():
    optimizer = wrap(build())

    with pytest.raises(StepRefused, match=r"AdamW.add_param_group\(\): .* would get no masters"):
        optimizer.base_optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    with pytest.raises(StepRefused, match=r"AdamW.zero_grad\(\): the gradients are at the model's weights"):
        optimizer.base_optimizer.zero_grad()

    assert len(optimizer.param_groups) == 1


def test_zeroed_gradients_that_are_kept_are_not_pending():
    model = build()
    optimizer = wrap(model)
    train(model, optimizer, range(2))

    optimizer.zero_grad(set_to_none=False)
    optimizer.state_dict()

    assert model.mix.weight.grad.count_nonzero() == 0
    optimizer.backward(loss_of(model, 2))
    with pytest.raises(PendingGradients, match="gradients that were not stepped"):
        optimizer.state_dict()


def change_by_fallback(optimizer):
    optimizer.fallback_to_fp32()


def change_by_reset(optimizer):
    optimizer.reset()


@pytest.mark.parametrize("change", [change_by_fallback, change_by_reset])
def test_gradients_of_a_window_in_which_the_precision_changes_are_dropped_all(change, caplog):
    model = build()
    optimizer = wrap(model)
    if change is change_by_reset:
        optimizer.fallback_to_fp32()
    optimizer.backward(loss_of(model, 0))  # the norm is in FP32 before and after, its gradient would survive

    change(optimizer)

    assert [name for name, one in model.named_parameters() if one.grad is not None] == []
    assert "gradients that were not stepped are dropped" in caplog.text
    train(model, optimizer, range(1))
    assert optimizer.last_result.applied


@pytest.mark.parametrize("group", [{"lr": 0.1}, [torch.nn.Parameter(torch.ones(1))]])
def test_a_group_without_parameters_is_refused(group):
    with pytest.raises(InvalidArgument, match="add_param_group: got no dict with 'params'"):
        wrap(build()).add_param_group(group)


def test_a_refused_group_changes_nothing():
    model = build()
    optimizer = wrap(model)

    with pytest.raises(InvalidArgument, match=r"dtype is torch.float64"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2, dtype=torch.float64))]})

    assert len(optimizer.param_groups) == 1
    train(model, optimizer, range(2))
    optimizer.fallback_to_fp32()
    assert optimizer.master_weights is optimizer.training_weights


@pytest.mark.parametrize("wrong", [{"precision": "fp16"}, "bf16"])
def test_options_of_another_kind_are_refused(wrong):
    with pytest.raises(InvalidArgument, match=r"options: got .*, expected MixedPrecisionOptions. Pass"):
        wrap(build(), chosen=wrong)


def test_wrong_kinds_of_arguments_are_refused_by_name():
    optimizer = wrap(build())

    with pytest.raises(InvalidArgument, match="step: got a list, expected a mapping"):
        optimizer.step([torch.ones(1)])
    with pytest.raises(InvalidArgument, match="set_parameters: got a list, expected a mapping"):
        optimizer.set_parameters([torch.ones(1)])
    with pytest.raises(InvalidArgument, match="set_parameters: w is a NoneType, expected a dense tensor"):
        optimizer.set_parameters({"w": None})
    with pytest.raises(CorruptedCheckpoint, match="state_dict: got NoneType, expected a mapping"):
        optimizer.load_state_dict(None)


@pytest.mark.parametrize("loss", [None, 1.5])
def test_a_loss_that_is_no_tensor_is_refused_and_begins_no_window(loss):
    model = build()
    optimizer = wrap(model)

    for take in (optimizer.scale_loss, optimizer.backward):
        with pytest.raises(InvalidArgument, match=r"^scale_loss: loss is .*, expected a tensor"):
            take(loss)

    train(model, optimizer, range(1))
    assert optimizer.skipped_steps == 0


def test_wrapping_twice_is_refused():
    optimizer = wrap(build())

    with pytest.raises(UnsupportedOptimizer, match="already wrapped"):
        MixedPrecisionOptimizer(optimizer.base_optimizer)


def test_closures_lbfgs_sparse_and_foreign_optimizers_are_refused_by_name():
    model = build()
    with pytest.raises(UnsupportedOptimizer, match="LBFGS: steps by a closure"):
        wrap(model, torch.optim.LBFGS)
    with pytest.raises(UnsupportedOptimizer, match="SparseAdam: works on sparse gradients"):
        wrap(model, lambda p: torch.optim.SparseAdam(list(p)))
    with pytest.raises(UnsupportedOptimizer, match=r"got str, expected a torch.optim.Optimizer"):
        MixedPrecisionOptimizer("adam")
    optimizer = wrap(model)
    with pytest.raises(UnsupportedOptimizer, match=r"step\(closure\): closures are not supported"):
        optimizer.step(lambda: 1.0)
    with pytest.raises(UnsupportedOptimizer, match=r"step\(closure\): closures are not supported"):
        optimizer.step(closure=lambda: 1.0)


def test_sparse_gradients_are_refused_by_name():
    model = torch.nn.Embedding(10, 4, sparse=True)
    optimizer = wrap(model, lambda p: torch.optim.SGD(p, lr=0.1))
    optimizer.backward(model(torch.tensor([1, 2])).sum())

    with pytest.raises(UnsupportedOptimizer, match=r"weight: gradient layout is torch.sparse_coo, expected dense"):
        optimizer.step()


def test_pickling_and_deep_copies_are_refused():
    with pytest.raises(StepRefused, match="cannot be pickled or deep-copied"):
        copy.deepcopy(wrap(build()))


def test_loading_a_state_dict_behind_its_back_is_noticed_and_can_be_taken_over():
    model, other = build(), build(seed=1)
    optimizer = wrap(model)
    train(model, optimizer, range(2))
    model.load_state_dict(other.state_dict())
    optimizer.backward(loss_of(model, 2))

    with pytest.raises(WeightsChanged, match=r"opt.sync_from_model\(\)"):
        optimizer.step()
    changed = optimizer.sync_from_model()
    optimizer.step()

    assert "mix.weight" in changed
    assert optimizer.skipped_steps == 0


def test_synchronising_takes_only_what_changed():
    model = build()
    optimizer = wrap(model)
    before = optimizer.master_weights["out.weight"].clone()
    with torch.no_grad():
        model.mix.weight.zero_()

    assert optimizer.sync_from_model() == ["mix.weight"]

    assert optimizer.master_weights["mix.weight"].abs().sum() == 0
    assert torch.equal(optimizer.master_weights["out.weight"], before)


def test_replaced_parameter_objects_are_noticed():
    model = build()
    optimizer = wrap(model)
    model.load_state_dict(build(seed=1).half().state_dict(), assign=True)

    with pytest.raises(WeightsChanged, match="another parameter object"):
        optimizer.step()


def test_a_step_without_a_scaled_loss_is_refused():
    model = build()
    optimizer = wrap(model)
    loss_of(model, 0).backward()

    with pytest.raises(
        StepRefused, match=r"no loss was scaled since the last step, but gradients would be divided by 1024"
    ):
        optimizer.step()


def test_bf16_may_be_stepped_after_a_plain_backward():
    model = build()
    optimizer = wrap(model, chosen=options("bf16"))
    loss_of(model, 0).backward()

    assert optimizer.step().applied


def test_dropping_a_bad_batch_forgets_its_loss():
    model = build()
    optimizer = wrap(model)
    optimizer.backward(loss_of(model, 0) * math.nan)

    optimizer.zero_grad()
    optimizer.backward(loss_of(model, 0))

    assert optimizer.step().applied


def test_a_write_of_the_same_values_is_no_change():
    """DistributedDataParallel broadcasts the weights when it is made."""
    model = build()
    optimizer = wrap(model)
    model.load_state_dict(model.state_dict())
    optimizer.backward(loss_of(model, 0))

    assert optimizer.step().applied


def test_converting_the_model_behind_its_back_is_noticed():
    model = build()
    optimizer = wrap(model)
    model.float()

    with pytest.raises(WeightsChanged, match="changed outside the optimizer"):
        optimizer.step()
    optimizer.sync_from_model()

    assert model.mix.weight.dtype == torch.float16
    train(model, optimizer, range(3))
    assert optimizer.skipped_steps == 0


def test_loading_a_model_in_fallback_reaches_the_masters():
    model, other = build(), build(seed=1)
    optimizer = wrap(model)
    optimizer.fallback_to_fp32()

    model.load_state_dict(other.state_dict())
    train(model, optimizer, [])

    assert torch.equal(optimizer.master_weights["mix.weight"], other.mix.weight)


def test_gradients_may_be_zeroed_between_scaling_and_backward():
    model = build()
    optimizer = wrap(model)

    for step in range(4):
        scaled = optimizer.scale_loss(loss_of(model, step))
        optimizer.zero_grad()
        scaled.backward()
        assert optimizer.step().applied


def test_a_dropped_bad_loss_does_not_excuse_a_later_overflow():
    model = build()
    optimizer = wrap(model)
    optimizer.backward(loss_of(model, 0) * math.nan)
    optimizer.zero_grad()
    optimizer.backward(loss_of(model, 1) * 1e7)

    assert optimizer.step().reason is StepReason.OVERFLOW
    assert optimizer.loss_scale == 512.0


def test_a_half_weight_that_is_trained_later_gets_its_upcast_as_master():
    model = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False).bfloat16())
    with torch.no_grad():
        model[1].weight.fill_(1.0 + 2.0**-7)
    optimizer = wrap(model, lambda _: torch.optim.SGD(model[0].parameters(), lr=0.1))

    optimizer.add_param_group({"params": [model[1].weight]})

    master = optimizer.master_weights["1.weight"]
    assert (model[1].weight.dtype, master.dtype, master.item()) == (torch.float16, torch.float32, 1.0 + 2.0**-7)
