"""Offload to disk: the same gradients, less memory, files that come and go."""

import contextlib
import copy
import gc
import random
import threading
from dataclasses import replace

import pytest
import torch
from tests.recompute.auto.auto_models import (
    FAMILIES,
    Held,
    assert_same_step,
    kept,
    mlp,
    random_schedule,
    runtime_of,
    seeded,
    sizes,
    stages_by_hand,
    step,
    transformer,
    wait_until,
)
from torch import nn

from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.auto.common.errors import ValueChanged
from model_checkpoint.recompute.auto.common.peak import PeakTracker, active_tracker, excluded_tensors, measure_peak
from model_checkpoint.recompute.auto.common.run_options import RunOptions
from model_checkpoint.recompute.auto.planning.forecast import Lanes
from model_checkpoint.recompute.auto.planning.planner import Chain, Mode, Stage
from model_checkpoint.recompute.auto.planning.points import plan_points
from model_checkpoint.recompute.auto.planning.schedule import Keep, describe_schedule, keep_all
from model_checkpoint.recompute.auto.saving.offload import Offloader


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_offload_gives_the_gradients_of_plain_training(family, prefetch, tmp_path):
    model, inputs = seeded(FAMILIES[family], seed=1)
    twin, rng = copy.deepcopy(model), random.Random(family)
    count = len(stages_by_hand(model))
    with runtime_of(twin, offloader=Offloader(tmp_path), prefetch=prefetch) as runtime:
        for _ in range(8):
            runtime.use(random_schedule(rng, 0, count - 1, ("full", "disk", "host", "drop")))
            assert_same_step(step(twin, inputs), step(model, inputs))

    assert list(tmp_path.iterdir()) == []


def test_disk_offload_holds_less_and_writes_the_rest(tmp_path):
    torch.manual_seed(0)
    model, x = mlp(64, 8), torch.randn(64, 64)

    def one():
        model(x).pow(2).mean().backward()

    plain = measure_peak(model, one, x)
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(8, "disk"))
        spilled = measure_peak(model, one, x)
        output = model(x)
        written = sum(sizes(tmp_path))

    assert spilled < 0.75 * plain
    assert written >= 8 * x.nbytes
    del output


def test_a_retained_graph_reads_spilled_tensors_again(tmp_path):
    torch.manual_seed(0)
    model, x = mlp(8, 4), torch.randn(4, 8)
    twin = copy.deepcopy(model)

    def one(model):
        loss = model(x).pow(2).mean()
        loss.backward(retain_graph=True)
        loss.backward()
        return [p.grad for p in model.parameters()]

    with runtime_of(twin, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(4, "disk"))
        got = one(twin)

    assert all(torch.equal(a, b) for a, b in zip(got, one(model), strict=True))


def test_the_planner_may_offload_when_asked_to(tmp_path):
    torch.manual_seed(0)
    model, x = mlp(64, 6), torch.randn(64, 64)
    auto_checkpoint(model, 0.6, x, offload="disk", spill_dir=tmp_path)

    names = {mode.name for stage in model.plan.profile.chain.stages for mode in stage.modes}

    assert "disk" in names
    expected = step(copy.deepcopy(model), (x,))
    assert_same_step(step(model, (x,)), expected)
    model.plan.remove()
    assert list(tmp_path.iterdir()) == []


def test_host_offload_is_granted_to_a_model_that_lies_elsewhere():
    RunOptions(offload="host").check(torch.nn.Linear(2, 2, device="meta"))


def test_host_offload_is_no_mode_of_a_cpu_model():
    with pytest.raises(ValueError, match=r"^offload: 'host' moves nothing for a model on the CPU"):
        auto_checkpoint(mlp(8, 4), 0.5, torch.randn(2, 8), offload="host")
    with pytest.raises(ValueError, match=r"^offload: got 'tape'"):
        auto_checkpoint(mlp(8, 4), 0.5, torch.randn(2, 8), offload="tape")


def test_a_stage_is_written_by_the_worker_while_the_next_one_runs(tmp_path):
    model, x, seen = mlp(16, 3), torch.randn(8, 16), {}
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use((Keep(stage=0, mode="disk"), Keep(stage=1), Keep(stage=2)))
        held = Held(runtime, model, x)

        def during(*_):
            seen["before"] = sizes(tmp_path)
            held.let_go()
            seen["written"] = wait_until(lambda: sizes(tmp_path)[0] > 0)  # this thread is in here: not it

        handle = model[1].register_forward_pre_hook(during)
        output = model(x)
        handle.remove()

        assert seen == {"before": [0], "written": True}
        output.sum().backward()


def test_at_most_one_stage_waits_to_be_written_and_none_after_forward(tmp_path):
    model, x, waiting = mlp(16, 5), torch.randn(8, 16), []
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(5, "disk"))
        with Held(runtime, model, x):
            for stage in model:
                # the file of the stage itself is there and empty
                stage.register_forward_pre_hook(lambda *_: waiting.append(sizes(tmp_path).count(0) - 1))
            output = model(x)
            waiting.append(sizes(tmp_path).count(0))

    assert waiting == [0, 1, 1, 1, 1, 0]
    del output
    assert sizes(tmp_path) == []


def live_before_each_stage(model, x):
    seen = []
    handles = [stage.register_forward_pre_hook(lambda *_: seen.append(active_tracker().live)) for stage in model]
    with PeakTracker(excluded_tensors(model, x)):
        model(x)
    for handle in handles:
        handle.remove()
    return seen


def test_what_waits_to_be_written_counts_as_memory_held(tmp_path):
    """The tracker sees the bytes of one stage while the next one runs, and not longer."""
    model, x = mlp(64, 6), torch.randn(256, 64)
    peaks = {}
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        for name, schedule in {"none": keep_all(6), "first": (Keep(stage=0, mode="disk"), *keep_all(6)[1:])}.items():
            runtime.use(schedule)
            peaks[name] = live_before_each_stage(model, x)

    saved = [a - b for a, b in zip(peaks["none"], peaks["first"], strict=True)]
    assert saved[:2] == [0, 0]
    assert all(size >= x.nbytes for size in saved[2:])


@pytest.mark.parametrize("mode", ["disk", "host"])
def test_backward_reads_one_stage_ahead(mode, tmp_path):
    torch.manual_seed(0)
    model, x = mlp(16, 5), torch.randn(8, 16)
    twin = copy.deepcopy(model)
    with runtime_of(twin, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(5, mode))
        for _ in range(3):
            assert_same_step(step(twin, (x,)), step(model, (x,)))
        layers = runtime.statistics.layers()

    assert [layers[str(i)].prefetch_hits for i in range(5)] == [3, 3, 3, 3, 0]  # the last is asked for at once
    assert all(layers[str(i)].bytes_saved > 0 for i in range(5))
    assert not any(t.name.startswith("recompute-offload") for t in threading.enumerate())


def test_a_retained_graph_is_read_ahead_in_both_walks(tmp_path):
    model, x = mlp(16, 4), torch.randn(8, 16)
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(4, "disk"))
        loss = model(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        layers = runtime.statistics.layers()

    assert [layers[str(i)].prefetch_hits for i in range(4)] == [2, 2, 2, 0]


class Fails(nn.Module):
    """Raises on demand in forward or in backward."""

    def __init__(self):
        super().__init__()
        self.linear, self.when = nn.Linear(8, 8), ""

    def forward(self, x):
        if self.when == "forward":
            raise RuntimeError("asked to fail")
        result = self.linear(x).tanh()
        if self.when == "backward":
            result.register_hook(self._raise)
        return result.tanh()

    def _raise(self, gradient):
        raise RuntimeError("asked to fail")


def risen_in_backward(model, x, *, retain):
    """How far memory rises above what waits for backward."""
    model(x).sum().backward()  # every gradient exists
    with PeakTracker(excluded_tensors(model, x)) as tracker:
        loss = model(x).sum()
        begin = tracker.live
        tracker.reset_peak()
        loss.backward(retain_graph=retain)
    return tracker.peak - begin


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("mode", ["disk", "host"])
def test_at_most_two_stages_are_read_back_at_once(mode, retain, tmp_path):
    """The one that backward is in, and the one before it."""
    hidden = 64 * 256 * 4
    layers = [nn.Sequential(nn.Linear(8, 256), nn.Tanh(), nn.Linear(256, 8)) for _ in range(10)]
    model, x = nn.Sequential(*layers), torch.randn(64, 8)
    plain = risen_in_backward(model, x, retain=retain)
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(10, mode))
        risen = risen_in_backward(model, x, retain=retain)

    assert hidden <= risen - plain <= 2.2 * hidden


@pytest.mark.parametrize("mode", ["disk", "host"])
@pytest.mark.parametrize("when", ["forward", "backward"])
@pytest.mark.parametrize("blocked", [False, True])
def test_after_an_error_no_bytes_files_or_reads_stay_behind(when, blocked, mode, tmp_path):
    torch.manual_seed(0)
    model, x = nn.Sequential(*[Fails() for _ in range(5)]), torch.randn(4, 8)
    expected = step(copy.deepcopy(model), (x,))
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(5, mode))
        guard = Held(runtime, model, x) if blocked else contextlib.nullcontext()
        model[2].when = when
        with guard, pytest.raises(RuntimeError, match="asked to fail"):
            step(model, (x,))
        model[2].when = ""
        gc.collect()
        assert sizes(tmp_path) == []

        assert_same_step(step(model, (x,)), expected)
    assert sizes(tmp_path) == []


def test_what_was_read_ahead_in_vain_is_let_go_by_the_next_forward(tmp_path):
    model, x = mlp(32, 4), torch.randn(64, 32)
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(4, "disk"))
        with PeakTracker(excluded_tensors(model, x)) as tracker:
            loss = model(x).sum()
            before = tracker.live
            (gradient,) = torch.autograd.grad(loss, model[3][2].weight, retain_graph=True)
            stuck = tracker.live - before - gradient.nbytes
            with torch.no_grad():
                model(x)
            left = tracker.live - before - gradient.nbytes

    assert stuck > 0
    assert left < stuck


def test_a_tensor_changed_before_it_is_written_is_detected(tmp_path):
    model, x = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 8)), torch.randn(4, 8)
    changed = r"^0: a tensor of shape \(4, 8\) was changed in place after it was saved"

    def write_into(_, args):
        with torch.no_grad():
            args[0].add_(1)

    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use((Keep(stage=0, mode="disk"), Keep(stage=1)))
        with Held(runtime, model, x):
            model[1].register_forward_pre_hook(write_into)
            with pytest.raises(ValueChanged, match=changed):
                model(x)


def test_backward_still_works_when_the_plan_was_removed_after_forward():
    torch.manual_seed(0)
    model, x = mlp(16, 4), torch.randn(8, 16)
    expected = step(copy.deepcopy(model), (x,))
    with runtime_of(model, offloader=Offloader()) as runtime:
        runtime.use(kept(4, "disk"))
        loss = model(x).pow(2).mean()

    loss.backward()

    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected[1], strict=True))
    assert not any(t.name.startswith("recompute-offload") for t in threading.enumerate())


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_with_offload_peaks_are_predicted_and_within_the_budget(share, tmp_path):
    torch.manual_seed(0)
    model, x = transformer(64, 8, rate=0.0), torch.randn(4, 32, 64)
    options = {"offload": "disk", "spill_dir": tmp_path}
    auto_checkpoint(model, 1.0, x, **options)
    plan = model.plan
    budget = int(plan.floor_bytes + share * (plan.plain_bytes - plan.floor_bytes))

    auto_checkpoint(model, budget, profile=plan.profile, **options)
    measured = measure_peak(model, lambda: model(x).pow(2).mean().backward(), x)

    assert measured <= budget
    assert measured == model.plan.peak_bytes
    assert model.plan.predicted_bytes == pytest.approx(measured, rel=0.2)


def test_the_planner_offloads_where_disk_is_quicker_than_computing_again():
    """Costs by hand: a stage whose bytes travel in a tenth of the time its forward takes."""
    full = Mode(name="full", forward=1, backward=2, saved=100, forward_peak=100, backward_peak=110)
    disk = replace(full, name="disk", saved=10, moved=90, fetched=90, write=0.1, read=0.1)
    stage = Stage(output=10, gradient=10, bare=1, bare_peak=20, modes=(full, disk))
    points = plan_points(Chain(stages=(stage,) * 8), budget=1000, lanes=Lanes(overlap=1.0), slots=500)

    best = min((p for p in points if p.bytes <= 500), key=lambda p: p.seconds)

    assert "disk" in describe_schedule(best.schedule)
    assert "[" not in describe_schedule(best.schedule)
    assert best.seconds == pytest.approx(8 * 3, rel=0.01)  # all but hidden
