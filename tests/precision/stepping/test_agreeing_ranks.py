"""Two ranks as threads: what either finds decides for both, and each tells its own part of it."""

import math

import pytest
import torch
from tests.precision.precision_models import assert_same, build, loss_of, options
from tests.precision.precision_ranks import run_threads

from model_checkpoint.precision import MixedPrecisionOptimizer, StepReason
from model_checkpoint.precision.scaling.consensus import DEFAULT_GROUP, agree_on

CPU = torch.device("cpu")


pytestmark = pytest.mark.usefixtures("alone")


def test_what_any_rank_says_is_said_by_all():
    said = [[True, False, False, True], [False, False, True, True]]

    heard = run_threads(lambda rank, group: agree_on(said[rank], group=group, device=CPU))

    assert heard == [[True, False, True, True]] * 2


def test_who_decides_alone_says_what_it_found():
    found = [True, False]

    assert agree_on(found, group=DEFAULT_GROUP, device=CPU) == found
    assert run_threads(lambda rank, _: agree_on([rank == 0], group=None, device=CPU)) == [[True], [False]]


def train(trouble, **changes):
    """The optimizers of two ranks after three steps, and what those did; rank 1 alone meets ``trouble`` in the second.

    ``trouble`` is given the model and the loss, and runs backward.
    """
    models = [build(), build()]  # made one after the other, for they draw from one generator

    def one(rank, group):
        model = models[rank]
        groups = [{"params": list(model.mix.parameters())}, {"params": list(model.out.parameters())}]
        base, chosen = torch.optim.SGD(groups, lr=0.1), options(**changes)
        optimizer = MixedPrecisionOptimizer(base, chosen, model=model, process_group=group)
        results = []
        for step in range(3):
            optimizer.zero_grad()
            if rank and step == 1:
                trouble(optimizer, model, loss_of(model, step))
            else:
                optimizer.backward(loss_of(model, step))
            results.append(optimizer.step())
        return optimizer, results

    return run_threads(one)


def test_an_overflow_on_one_rank_skips_the_step_of_all_and_lowers_their_scale():
    (first, ours), (second, theirs) = train(lambda optimizer, model, loss: optimizer.backward(loss * 1e7))

    assert [result.reason for result in ours] == [StepReason.APPLIED, StepReason.OTHER_RANK, StepReason.APPLIED]
    assert [result.reason for result in theirs] == [StepReason.APPLIED, StepReason.OVERFLOW, StepReason.APPLIED]
    assert (ours[1].offenders, math.isfinite(ours[1].grad_norm)) == ((), True)
    assert theirs[1].offenders
    assert first.loss_scale == second.loss_scale == 512.0
    assert (first.skipped_steps, second.skipped_steps) == (1, 1)
    assert_same(dict(first.master_weights), dict(second.master_weights))
    assert [(e.step, e.event, e.detail) for e in first.session.timeline] == [
        (2, "other_rank", ""),
        (2, "backed_off", ""),
    ]


def test_a_bad_loss_on_one_rank_skips_the_step_of_all_and_keeps_their_scale():
    ranks = train(lambda optimizer, model, loss: optimizer.backward(loss * math.nan))

    for optimizer, results in ranks:
        assert [result.applied for result in results] == [True, False, True]
        assert results[1].reason is StepReason.BAD_LOSS
        assert (optimizer.loss_scale, optimizer.get_stats().bad_losses) == (1024.0, 1)


def test_the_group_that_broke_on_one_rank_falls_back_on_all():
    def spoil(optimizer, model, loss):
        optimizer.backward(loss)
        model.out.weight.grad[0, 0] = math.inf

    for optimizer, _ in train(spoil, max_consecutive_overflows=1):
        assert optimizer.session.fallback.fp32_groups == {1}
        assert optimizer.loss_scale == 512.0
