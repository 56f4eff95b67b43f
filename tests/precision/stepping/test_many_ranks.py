"""Several processes: one verdict for all, whichever rank sees the trouble; and gradients that are really reduced."""

import contextlib
import math
import re

import pytest
import torch
from tests.precision.precision_models import build, loss_of, options, wrap
from tests.precision.precision_ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

from model_checkpoint.precision import StepReason
from model_checkpoint.precision.errors import StepRefused

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


def collect(optimizer, results, **more):
    masters = {name: weight.clone() for name, weight in optimizer.master_weights.items()}
    return {
        "reasons": [result.reason.value for result in results],
        "masters": masters,
        "scale": optimizer.loss_scale,
        "modes": optimizer.session.fallback.to_tree(),
        **more,
    }


def train_rank(rank, world, case):
    """Twelve steps in which rank 1 alone meets the trouble of ``case``."""
    model = build()
    optimizer = wrap(model, chosen=options(max_consecutive_overflows=3, recovery_steps=4))
    trained = DistributedDataParallel(model) if case != "local" else model
    results = []
    for step in range(12):
        optimizer.zero_grad()
        loss = loss_of(trained, 2 * step + rank)
        if case == "overflow" and rank == 1 and step in (2, 3):
            loss = loss * 1e7
        if case == "bad loss" and rank == 1 and step == 2:
            loss = loss * math.nan
        optimizer.backward(loss)
        if case == "local" and rank == 1 and step in (2, 3, 4):
            model.mix.weight.grad[0, 0] = math.nan
        results.append(optimizer.step())
    return collect(optimizer, results)


@pytest.mark.parametrize("case", ["none", "overflow", "bad loss"])
def test_ddp_ranks_skip_together_and_stay_equal(tmp_path, case):
    first, second = run_ranks(train_rank, tmp_path, case)

    assert_equal_ranks(first, second)
    skipped = [reason for reason in first["reasons"] if reason != "applied"]
    assert skipped == {"none": [], "overflow": ["overflow"] * 2, "bad loss": ["bad_loss"]}[case]


def assert_equal_ranks(first, second):
    assert first["reasons"] == second["reasons"]
    assert (first["scale"], first["modes"]) == (second["scale"], second["modes"])
    assert all(torch.equal(weight, second["masters"][name]) for name, weight in first["masters"].items())


def test_a_rank_that_alone_sees_nan_makes_the_other_skip_and_fall_back_too(tmp_path):
    first, second = run_ranks(train_rank, tmp_path, "local")

    assert first["reasons"][2:5] == [StepReason.OTHER_RANK.value] * 3
    assert second["reasons"][2:5] == [StepReason.OVERFLOW.value] * 3
    assert first["modes"] == second["modes"]
    assert first["scale"] == second["scale"]


def make_in_order(order, chosen):
    """The three orders in which people make a model, its wrapper and its optimizer."""
    model = build()
    wrapper = None if order == "optimizer first" else DistributedDataParallel(model)
    optimizer = wrap(wrapper if order == "optimizer around the wrapper" else model, chosen=chosen)
    return model, wrapper or DistributedDataParallel(model), optimizer


def accumulate_rank(rank, world, order):
    return [accumulate(rank, order, in_fp32=in_fp32) for in_fp32 in (True, False)]


def accumulate(rank, order, *, in_fp32):
    """Windows of two micro-batches, the first without reduction; beside each its mean over ranks by hand."""
    model, wrapper, optimizer = make_in_order(order, options("bf16", accumulate_in_fp32=in_fp32, max_grad_norm=0.0))
    results, dtypes, errors = [], set(), []
    for step in range(4):
        optimizer.zero_grad()
        windows = [(4 * step + rank, wrapper.no_sync()), (4 * step + 2 + rank, contextlib.nullcontext())]
        expected = average_by_hand(model, [batch for batch, _ in windows])
        for batch, context in windows:
            with context:
                optimizer.backward(loss_of(wrapper, batch))
        errors += [float((p.grad.float() - expected[n]).norm()) for n, p in model.named_parameters()]
        dtypes |= {p.grad.dtype for p in model.parameters()}
        results.append(optimizer.step())
    return collect(optimizer, results, dtypes=dtypes, error=max(errors))


def average_by_hand(model, batches):
    """The gradients of several batches, summed in FP32 and averaged over ranks, without the wrapper."""
    parameters = dict(model.named_parameters())
    loss = sum(loss_of(model, batch) for batch in batches)
    gradients = [one.float() for one in torch.autograd.grad(loss, list(parameters.values()))]
    for gradient in gradients:
        torch.distributed.all_reduce(gradient)
    return {name: gradient / 2 for name, gradient in zip(parameters, gradients, strict=True)}


@pytest.mark.parametrize("order", ["optimizer first", "wrapper first", "optimizer around the wrapper"])
def test_ddp_gradients_accumulate_and_are_reduced_whatever_was_made_first(tmp_path, order):
    first, second = run_ranks(accumulate_rank, tmp_path, order)

    for one, other, dtypes in zip(first, second, [{torch.float32}, {torch.float32, torch.bfloat16}], strict=True):
        assert_equal_ranks(one, other)
        assert set(one["reasons"]) == {"applied"}
        assert one["dtypes"] == dtypes
        assert one["error"] < 0.02  # of BF16, in which the reducer sums; gradients not reduced are off by 0.8


def fall_back_rank(rank, world, hooked):
    """Rank 1 overflows until all fall back; they return on probation and go on."""
    model, wrapper, optimizer = make_in_order("optimizer first", options(max_consecutive_overflows=2, recovery_steps=4))
    calls = []
    if hooked:
        wrapper.register_comm_hook(calls, count_and_reduce)
    results, dtypes = [], []
    for step in range(14):
        optimizer.zero_grad()
        loss = loss_of(wrapper, 2 * step + rank)
        optimizer.backward(loss * 1e7 if rank == 1 and step in (3, 4) else loss)
        results.append(optimizer.step())
        dtypes.append(model.mix.weight.dtype)
    return collect(optimizer, results, dtypes=dtypes, calls=len(calls))


def count_and_reduce(calls, bucket):
    calls.append(bucket.index())
    future = torch.distributed.all_reduce(bucket.buffer().div_(2), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


@pytest.mark.parametrize("hooked", [False, True])
def test_ddp_ranks_fall_back_and_return_together_without_being_wrapped_again(tmp_path, hooked):
    first, second = run_ranks(fall_back_rank, tmp_path, hooked)

    assert_equal_ranks(first, second)
    assert first["dtypes"] == [torch.float16] * 4 + [torch.float32] * 4 + [torch.float16] * 6
    assert [reason for reason in first["reasons"] if reason != "applied"] == ["overflow"] * 2
    assert (first["calls"] >= 14) is hooked


def refused_rank(rank, world):
    return {case: refuse(case) for case in REFUSED}


def refuse(case):
    """The message for a wrapper whose reducer cannot follow."""
    model = build()
    try:
        if case == "unknown":  # the wrapper is around the parts, so that the model itself is never called
            optimizer = wrap(model)
            wrapper = DistributedDataParallel(torch.nn.Sequential(*model.children()))
            optimizer.backward(wrapper(torch.arange(12)).float().square().mean())
        elif case == "wrapper first":
            wrapper = DistributedDataParallel(model, static_graph=True)
            wrap(model, chosen=options(accumulate_in_fp32=False))
            wrapper(torch.arange(12))
        elif case == "static_graph":
            wrap(model)
            DistributedDataParallel(model, static_graph=True)(torch.arange(12))
        elif case == "group":
            wrap(DistributedDataParallel(model, process_group=torch.distributed.new_group(backend="gloo")))
        else:
            wrap(DistributedDataParallel(model, gradient_as_bucket_view=True))
    except StepRefused as error:
        return str(error)


REFUSED = {
    "group": "process group of its own: .*Make the optimizer around the plain model",
    "wrapper first": "static_graph=True or .*Make the optimizer around the plain model",
    "static_graph": r"static_graph=True\): .*accumulate_in_fp32=False",
    "gradient_as_bucket_view": r"gradient_as_bucket_view=True\): .*accumulate_in_fp32=False",
    "unknown": r"backward: Expected .*Make the optimizer with it as model=, or choose accumulate_in_fp32=False",
}


def test_wrappers_that_cannot_follow_are_refused_with_the_cure(tmp_path):
    for messages in run_ranks(refused_rank, tmp_path):
        for case, message in REFUSED.items():
            assert re.search(message, messages[case]), case


def cured_rank(rank, world):
    group = torch.distributed.new_group(backend="gloo")
    return [
        train_cured(rank, gradient_as_bucket_view=True),
        train_cured(rank, must_wrap_again=True, static_graph=True),
        train_cured(rank, must_wrap_again=True, process_group=group),
    ]


def train_cured(rank, *, must_wrap_again=False, **settings):
    """What the refusals advise, through a fallback that is asked for and the return from it."""
    model = build()
    optimizer = wrap(model, chosen=options(recovery_steps=3, accumulate_in_fp32=False))
    wrapper, results, refused = DistributedDataParallel(model, **settings), [], 0
    for step in range(8):
        optimizer.zero_grad()
        optimizer.backward(loss_of(wrapper, 2 * step + rank))
        try:
            results.append(optimizer.step())
            if step == 2:
                optimizer.fallback_to_fp32()
        except StepRefused:
            refused += 1
            wrapper = DistributedDataParallel(model, **settings)
    assert refused == (2 if must_wrap_again else 0)
    return collect(optimizer, [], applied=optimizer.step_count - optimizer.skipped_steps)


def test_what_the_refusals_advise_trains_through_a_fallback_and_back(tmp_path):
    first, second = run_ranks(cured_rank, tmp_path)

    for one, other in zip(first, second, strict=True):
        assert_equal_ranks(one, other)
        assert one["applied"] == 8
        assert one["modes"]["groups"][0]["mode"] == "probation"
