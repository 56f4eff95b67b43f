"""What a step tells: its reason, its log line, its error, and what it leaves open."""

import logging
import math

import pytest
import torch
from tests.precision.precision_models import build, loss_of, options, wrap

from model_checkpoint.precision import MixedPrecisionOptimizer, StepReason
from model_checkpoint.precision.errors import NonFiniteTraining, StepRefused


def spoiled(chosen, *, places=5, value=math.nan, scale=1.0):
    """The optimizer of a model after a step in which the first ``places`` gradients held ``value``."""
    model = torch.nn.Sequential(*[torch.nn.Linear(2, 2, bias=False) for _ in range(7)])
    optimizer = wrap(model, lambda p: torch.optim.SGD(p, lr=0.1), chosen)
    optimizer.backward(model(torch.ones(1, 2)).sum() * scale)
    for layer in list(model)[:places]:
        layer.weight.grad.fill_(value)
    return optimizer


@pytest.mark.parametrize(
    ("precision", "level"), [("fp16", logging.INFO), ("bf16", logging.WARNING)], ids=["scaled", "not scaled"]
)
def test_an_overflow_is_ordinary_business_only_where_there_is_a_scale(precision, level, caplog):
    optimizer = spoiled(options(precision))
    scale = optimizer.loss_scale

    with caplog.at_level(logging.INFO, logger="model_checkpoint.precision"):
        assert optimizer.step().reason is StepReason.OVERFLOW

    named = "; ".join(f"{place}.weight: nan (4 NaN, 0 Inf)" for place in range(3))
    assert caplog.record_tuples[0] == (
        "model_checkpoint.precision",
        level,
        f"step 1 skipped: overflow at scale {scale:g}: {named}",
    )


def test_a_loss_that_is_inf_skips_the_step_although_its_gradients_are_finite(caplog):
    model = build()
    optimizer = wrap(model)
    before = {name: weight.clone() for name, weight in optimizer.master_weights.items()}
    optimizer.backward(loss_of(model, 0) + math.inf)

    result = optimizer.step()

    assert (result.applied, result.reason, result.offenders) == (False, StepReason.BAD_LOSS, ())
    assert math.isfinite(result.grad_norm)
    assert all(torch.equal(weight, before[name]) for name, weight in optimizer.master_weights.items())
    assert caplog.record_tuples[0][1:] == (
        logging.WARNING,
        "step 1 skipped: bad_loss at scale 1024: no gradient of this process",
    )
    assert [(e.event, e.detail) for e in optimizer.session.timeline] == [("bad_loss", "")]


def test_the_error_of_hopeless_training_names_five_parameters():
    optimizer = spoiled(options(max_fp32_failures=1, fp32_layer_patterns=["Linear"]), places=6)

    with pytest.raises(NonFiniteTraining, match="step 1: 1 steps in a row") as caught:
        optimizer.step()

    assert [str(place) for place in range(7) if f"{place}.weight: nan" in str(caught.value)] == list("01234")
    assert [offender.name for offender in caught.value.offenders] == [f"{place}.weight" for place in range(6)]
    assert optimizer.last_result.reason is StepReason.NONFINITE_FP32


def test_the_error_of_hopeless_training_tells_the_reason_where_no_gradient_broke():
    optimizer = spoiled(options(max_fp32_failures=1, fp32_layer_patterns=["Linear"]), places=0, scale=1.0)
    optimizer.backward(torch.tensor(math.inf, requires_grad=True))

    with pytest.raises(NonFiniteTraining, match=r"FP32 cannot cure it: reason bad_loss\."):
        optimizer.step()


def test_an_optimizer_whose_parameters_are_still_to_come_scales_as_it_will():
    base = torch.optim.SGD([{"params": []}], lr=0.1)

    assert MixedPrecisionOptimizer(base, options()).loss_scale == 1024.0


def test_a_fallen_optimizer_goes_on_with_a_scale_it_shares():
    """One loss trains both, and the other still needs it."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    first = wrap(model, lambda _: torch.optim.SGD(model[0].parameters(), lr=0.1))
    second = wrap(model, lambda _: torch.optim.SGD(model[1].parameters(), lr=0.1), scaler=first.scaler)
    first.fallback_to_fp32()

    assert first.loss_scale == second.loss_scale == 1024.0
    first.backward(model(torch.ones(1, 2)).sum())
    model[0].weight.grad[0, 0] = math.inf
    first.step()
    second.step()
    assert first.loss_scale == second.loss_scale == 512.0


def test_gradients_are_pending_from_the_moment_their_window_is_open_again():
    model = build()
    optimizer = wrap(model)
    optimizer.backward(loss_of(model, 0))
    optimizer.step()
    assert optimizer.session.find_pending() == []

    optimizer.scale_loss(loss_of(model, 1))

    assert len(optimizer.session.find_pending()) == 7


@pytest.mark.parametrize("fused", [True, False])
def test_a_step_leaves_no_weight_that_looks_changed(fused):
    model = build()
    optimizer = wrap(model, lambda p: torch.optim.AdamW(p, lr=0.1, fused=fused))

    for step in range(3):
        optimizer.zero_grad()
        optimizer.backward(loss_of(model, step))
        optimizer.step()

        assert not any(slot.is_changed for slot in optimizer.parameter_table.slots)


def test_a_weight_that_is_its_own_master_may_be_moved():
    model = build()
    optimizer = wrap(model)
    model.norm.weight.data = model.norm.weight.data.clone()

    assert optimizer.sync_from_model() == []
    optimizer.backward(loss_of(model, 0))
    assert optimizer.step().applied


def test_a_step_without_any_gradient_is_applied_and_changes_nothing():
    for fused in (True, False):
        model = build()
        optimizer = wrap(model, lambda p, fused=fused: torch.optim.AdamW(p, lr=0.1, fused=fused))
        before = {name: weight.clone() for name, weight in optimizer.master_weights.items()}
        optimizer.scale_loss(torch.ones(()))

        result = optimizer.step()

        assert (result.applied, result.grad_norm) == (True, 0.0)
        assert all(torch.equal(weight, before[name]) for name, weight in optimizer.master_weights.items())


def test_a_result_says_whether_the_gradients_were_clipped():
    for limit, clipped in ((1e9, False), (1e-3, True)):
        optimizer = spoiled(options(max_grad_norm=limit), places=0)

        assert optimizer.step().clipped is clipped
        assert optimizer.get_stats().gradient_stats.clip_count == clipped


def test_any_other_error_of_backward_is_raised_as_it_is():
    model = build()
    optimizer = wrap(model)
    loss = loss_of(model, 0)
    optimizer.backward(loss)

    with pytest.raises(RuntimeError, match="backward through the graph a second time") as caught:
        optimizer.backward(loss)
    assert not isinstance(caught.value, StepRefused)
