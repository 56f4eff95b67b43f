"""Under DistributedDataParallel in a group of one process: what is refused is refused, and its cure trains."""

import re

import pytest
import torch
from tests.precision.stepping.test_many_ranks import REFUSED, refuse, train_cured, train_rank


@pytest.fixture(autouse=True)
def alone():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


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
