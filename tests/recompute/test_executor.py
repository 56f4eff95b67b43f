"""The executor: every schedule gives the gradients of plain training, bit for bit."""

import copy
import random

import pytest
import torch
from auto_models import FAMILIES, assert_same_step, random_schedule, runtime_of, stages_by_hand, step

from model_checkpoint.recompute.schedule import describe

MODES = {"recompute": ("full",), "drop": ("full", "drop"), "masks": ("drop", "drop+masks")}


@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_buffers_and_generators_equal_plain_training(family, modes):
    torch.manual_seed(1)
    build, make_inputs = FAMILIES[family]
    model, inputs = build(), make_inputs()
    count, rng = len(stages_by_hand(model)), random.Random(family + modes)
    for _ in range(25):
        twin = copy.deepcopy(model)
        schedule = random_schedule(rng, 0, count - 1, MODES[modes])
        expected = step(model, inputs)

        with runtime_of(twin) as runtime:
            runtime.use(schedule)
            got = step(twin, inputs)

        assert_same_step(got, expected), describe(schedule)
        model.load_state_dict(twin.state_dict())
