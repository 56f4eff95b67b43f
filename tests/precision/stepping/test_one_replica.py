"""Under DistributedDataParallel in a group of one process: what is refused is refused, and its cure trains."""

import copy
import gc
import re

import pytest
import torch
from tests.precision.precision_models import build, loss_of, wrap
from tests.precision.stepping.test_many_ranks import REFUSED, refuse, train_cured, train_rank
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrapper_that_cannot_follow_is_refused_with_the_cure(case):
    assert re.search(REFUSED[case], refuse(case))


@pytest.mark.parametrize(
    ("settings", "again"), [({}, False), ({"gradient_as_bucket_view": True}, False), ({"static_graph": True}, True)]
)
def test_half_gradients_train_through_a_fallback_and_back(settings, again):
    found = train_cured(0, must_wrap_again=again, **settings)

    assert found["applied"] == 8
    assert found["modes"]["groups"][0]["mode"] == "probation"


def test_fp32_gradients_of_half_parameters_pass_the_reducer():
    found = train_rank(0, 1, "none")

    assert found["reasons"] == ["applied"] * 12


def summing(calls, bucket):
    """A hook for communication that notes the dtype of what it is given."""
    calls.append(bucket.buffer().dtype)
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def test_a_reducer_made_anew_keeps_the_hooks_of_its_wrapper():
    model, calls = build(), []
    optimizer = wrap(model)
    wrapper = DistributedDataParallel(model)
    wrapper.register_comm_hook(calls, summing)

    for dtypes in ({torch.float16, torch.float32}, {torch.float32}):
        calls.clear()
        optimizer.zero_grad()
        optimizer.backward(loss_of(wrapper, 0))
        assert set(calls) == dtypes
        assert optimizer.step().applied
        optimizer.fallback_to_fp32()


def test_a_wrapper_that_is_gone_does_no_harm():
    model = build()
    optimizer = wrap(model)
    wrapper = DistributedDataParallel(model)
    optimizer.backward(loss_of(wrapper, 0))
    optimizer.step()
    del wrapper
    gc.collect()

    optimizer.zero_grad()
    optimizer.backward(loss_of(model, 1))

    assert model.mix.weight.grad.dtype == torch.float32
    assert optimizer.step().applied


def test_a_copy_of_a_model_trains_in_a_wrapper_without_its_optimizer():
    model = build()
    wrap(model)
    wrapper = DistributedDataParallel(copy.deepcopy(model))

    loss_of(wrapper, 0).backward()

    assert wrapper.module.mix.weight.grad is not None
