"""Prefetch: regions run ahead on a worker, one at a time, within the budget."""

import contextlib
import copy
import os
import random
import signal
import threading
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.recompute.auto.auto_models import (
    FAMILIES,
    assert_same_step,
    every_stage,
    mlp,
    random_schedule,
    runtime_of,
    seeded,
    stages_by_hand,
    step,
    transformer,
)
from torch import nn

from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.auto.common.peak import PeakTracker, measure_peak
from model_checkpoint.recompute.auto.planning.schedule import Keep
from model_checkpoint.recompute.common.recomputing import is_recomputing


@pytest.mark.parametrize("family", FAMILIES)
def test_prefetch_gives_the_gradients_of_plain_training(family):
    model, inputs = seeded(FAMILIES[family], seed=1)
    twin, rng = copy.deepcopy(model), random.Random(family)
    count = len(stages_by_hand(model))
    with runtime_of(twin, prefetch=True) as runtime:
        for _ in range(10):
            runtime.use(random_schedule(rng, 0, count - 1, ("full", "drop")))
            assert_same_step(step(twin, inputs), step(model, inputs))


def test_prefetch_runs_regions_on_a_worker_and_counts_them():
    """Backward waits at each boundary until the worker has begun, so that every region but the last is a hit."""
    model, x = mlp(256, 6), torch.randn(512, 256)
    begun, on_worker = threading.Semaphore(0), []

    def watch(stage, _, output):
        if threading.current_thread().name.startswith("recompute-prefetch"):
            on_worker.append(stage)
            begun.release()
        elif not is_recomputing() and stage is not model[5]:
            output.register_hook(lambda _: begun.acquire(timeout=60) and None)

    for stage in model:
        stage.register_forward_hook(watch)
    with runtime_of(model, prefetch=True) as runtime:
        runtime.use(every_stage(6))
        for _ in range(5):
            step(model, (x,))
        layers = runtime.statistics.layers()

    assert len(on_worker) == 5 * 5
    assert sum(record.prefetch_hits for record in layers.values()) == 5 * 5
    assert not any(t.name.startswith("recompute-prefetch") for t in threading.enumerate())


def test_regions_that_draw_random_numbers_are_never_prefetched():
    model, x = transformer(16, 4, rate=0.5), torch.randn(2, 4, 16)
    with runtime_of(model, prefetch=True) as runtime:
        runtime.use(every_stage(4))
        step(model, (x,))
        layers = runtime.statistics.layers()

    assert sum(record.prefetch_hits for record in layers.values()) == 0


class Noisy(nn.Module):
    """Dropout of something that is held anyway, and something cheap after it."""

    def __init__(self, after):
        super().__init__()
        self.linear, self.after = nn.Linear(16, 16), after

    def forward(self, x):
        return self.after(F.dropout(self.linear(x).tanh(), 0.5))


@pytest.mark.parametrize("after", [nn.Identity, nn.ReLU])
@pytest.mark.parametrize(("mode", "hits"), [("drop", 1), ("drop+masks", 0)])
def test_a_region_whose_input_must_be_drawn_again_is_left_to_backward(mode, hits, after):
    """Generators belong to the whole process: two threads that set them back and draw spoil each other's numbers."""
    torch.manual_seed(0)
    model, x = nn.Sequential(Noisy(after()), *mlp(16, 2)), torch.randn(8, 16)
    expected = step(copy.deepcopy(model), (x,))
    with runtime_of(model, prefetch=True) as runtime, PeakTracker():  # under a tracker ahead means at once
        runtime.use((Keep(stage=0, mode=mode), *every_stage(3)[1:]))
        got = step(model, (x,))
        layers = runtime.statistics.layers()

    assert layers["1"].prefetch_hits == hits
    assert_same_step(got, expected)


def test_prefetch_looks_one_region_ahead_at_most():
    """With every region as large as the next, memory grows by one region, not by all."""
    torch.manual_seed(0)
    model, x = mlp(32, 8), torch.randn(64, 32)

    def one():
        model(x).pow(2).mean().backward()

    peaks = {}
    for prefetch in (False, True):
        with runtime_of(model, prefetch=prefetch) as runtime:
            runtime.use(every_stage(8))
            peaks[prefetch] = measure_peak(model, one, x)
    region = 3 * x.nbytes

    assert peaks[False] < peaks[True] <= peaks[False] + region + 4096


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_with_prefetch_the_predicted_peak_is_the_measured_one(share):
    torch.manual_seed(0)
    model, x = mlp(64, 12), torch.randn(256, 64)
    auto_checkpoint(model, 1.0, x, prefetch=True)
    profile, floor, plain = model.plan.profile, model.plan.floor_bytes, model.plan.plain_bytes

    auto_checkpoint(model, int(floor + share * (plain - floor)), profile=profile, prefetch=True)

    assert model.plan.peak_bytes <= model.plan.budget_bytes
    assert model.plan.predicted_bytes == pytest.approx(model.plan.peak_bytes, rel=0.2)
    assert "ahead" in model.plan.explain()


def test_prefetch_does_not_raise_the_floor():
    torch.manual_seed(0)
    model, x = mlp(64, 12), torch.randn(256, 64)
    floors = {}
    for prefetch in (False, True):
        auto_checkpoint(model, 1.0, x, prefetch=prefetch)
        floors[prefetch] = model.plan.floor_bytes

    assert floors[True] <= 1.15 * floors[False]  # which plans tie for the leanest is a matter of the clock


def test_a_region_that_the_plan_leaves_to_backward_is_not_run_ahead():
    model, x = mlp(32, 4), torch.randn(64, 32)
    with runtime_of(model, prefetch=True) as runtime:
        runtime.use(tuple(replace(node, ahead=False) for node in every_stage(4)))
        step(model, (x,))
        layers = runtime.statistics.layers()

    assert sum(record.prefetch_hits for record in layers.values()) == 0


class Explodes(nn.Module):
    """Fails in backward, before anything of this stage has been computed."""

    def forward(self, x):
        result = x.sin()
        result.register_hook(self._raise)
        return result.cos()

    def _raise(self, gradient):
        raise RuntimeError("asked to fail")


def test_after_an_error_a_region_that_waits_for_the_worker_is_not_run():
    torch.manual_seed(0)
    model, x = nn.Sequential(*mlp(16, 3), Explodes()), torch.randn(8, 16)
    begun, gate, again = threading.Event(), threading.Event(), []
    model[2].register_forward_hook(lambda *_: again.append(is_recomputing()))
    with runtime_of(model, prefetch=True) as runtime:
        runtime.use(every_stage(4))
        worker = runtime.resources.prefetcher._workers()
        blocked = worker.submit(lambda: begun.set() or gate.wait(60))
        assert begun.wait(60)
        with contextlib.suppress(RuntimeError):
            model(x).sum().backward()  # nobody holds the graph after it
        gate.set()
        assert blocked.result(60)
        assert worker.submit(lambda: "all before it is done").result(60)

    assert again == [False]


class Waits(nn.Module):
    """Waits on the worker thread until it is let go."""

    def __init__(self):
        super().__init__()
        self.linear, self.begun, self.gate = nn.Linear(8, 8), threading.Event(), threading.Event()

    def forward(self, x):
        if threading.current_thread() is not threading.main_thread():
            self.begun.set()
            self.gate.wait(60)
        return self.linear(x).tanh()


def test_a_child_forked_in_backward_does_not_wait_for_its_parents_worker():
    torch.manual_seed(0)
    model, x, children = nn.Sequential(Waits(), nn.Sequential(nn.Linear(8, 8), nn.Tanh())), torch.randn(4, 8), []
    expected = step(model, (x,))[1]

    def fork(gradient):
        assert model[0].begun.wait(60)  # the worker is in the region that backward needs next
        children.append(os.fork())
        if children[0]:
            model[0].gate.set()
        else:
            signal.alarm(60)  # the end of a child that hangs

    with runtime_of(model, prefetch=True) as runtime:
        runtime.use(every_stage(2))
        handle = model[0].register_forward_hook(lambda _, args, output: output.register_hook(fork) and None)
        output = model(x)
        handle.remove()
        model.zero_grad()
        output.pow(2).mean().backward()
        same = all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))
        if children[0] == 0:
            os._exit(0 if same else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    assert same


def test_a_profile_without_prefetch_answers_no_question_about_it():
    model, x = mlp(16, 6), torch.randn(8, 16)
    auto_checkpoint(model, 0.6, x)

    with pytest.raises(ValueError, match=r"^profile: made with .*prefetch=False.*, got .*prefetch=True"):
        auto_checkpoint(model, 0.5, profile=model.plan.profile, prefetch=True)
