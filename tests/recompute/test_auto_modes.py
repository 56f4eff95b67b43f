"""Prefetch, offload, the determinism dial, statistics, saved plans and pictures."""

import copy
import json
import os
import random
import subprocess
import sys
import threading

import pytest
import torch
from auto_models import FAMILIES, assert_same_step, mlp, random_schedule, runtime_of, stages_by_hand, step, transformer
from torch import nn

from model_checkpoint.recompute.auto_errors import PlanMismatch, RecomputeDiverged
from model_checkpoint.recompute.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.determinism import Determinism, fingerprint_of
from model_checkpoint.recompute.frame import is_recomputing
from model_checkpoint.recompute.offload import Offloader
from model_checkpoint.recompute.peak import measure_peak
from model_checkpoint.recompute.plan import Plan
from model_checkpoint.recompute.schedule import Keep, Region


def every_stage(count):
    return tuple(Region(start=i, stop=i, body=(Keep(stage=i),)) for i in range(count))


@pytest.mark.parametrize("family", FAMILIES)
def test_prefetch_gives_the_gradients_of_plain_training(family):
    torch.manual_seed(1)
    build, make_inputs = FAMILIES[family]
    model, inputs = build(), make_inputs()
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


CHILD = """
import ctypes, sys, torch
sys.path.insert(0, sys.argv[1])
from torch import nn
from model_checkpoint.recompute.autocheckpoint import auto_checkpoint
torch.set_num_threads(1)
model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512)) for _ in range(16)])
x = torch.randn(2048, 512)
loss = lambda y: y.pow(2).mean()
auto_checkpoint(model, float(sys.argv[2]), x, loss=loss, prefetch=True)
def reset(): open("/proc/self/clear_refs", "w").write("5")
def status(key): return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith(key))
for _ in range(2): loss(model(x)).backward()
import gc; gc.collect()
base = status("VmRSS"); reset()
loss(model(x)).backward()
print(status("VmHWM") - base, model.plan.budget_bytes, model.plan.plain_bytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_resident_memory_with_prefetch_stays_within_the_budget():
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "OMP_NUM_THREADS": "1"}
    out = subprocess.run(
        [sys.executable, "-c", CHILD, "tests/recompute", "0.4"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    grown, budget, plain = map(int, out.stdout.split())

    assert grown <= 1.02 * budget, (grown, budget)
    assert grown < 0.5 * plain


@pytest.mark.parametrize("family", FAMILIES)
def test_disk_offload_gives_the_gradients_of_plain_training(family, tmp_path):
    torch.manual_seed(1)
    build, make_inputs = FAMILIES[family]
    model, inputs = build(), make_inputs()
    twin, rng = copy.deepcopy(model), random.Random(family)
    count = len(stages_by_hand(model))
    with runtime_of(twin, offloader=Offloader(tmp_path)) as runtime:
        for _ in range(8):
            runtime.use(random_schedule(rng, 0, count - 1, ("full", "disk", "drop")))
            assert_same_step(step(twin, inputs), step(model, inputs))

    assert list(tmp_path.iterdir()) == []


def test_disk_offload_holds_less_and_writes_the_rest(tmp_path):
    torch.manual_seed(0)
    model, x = mlp(64, 8), torch.randn(64, 64)

    def one():
        model(x).pow(2).mean().backward()

    plain = measure_peak(model, one, x)
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(tuple(Keep(stage=i, mode="disk") for i in range(8)))
        spilled = measure_peak(model, one, x)
        output = model(x)
        written = sum(file.stat().st_size for file in tmp_path.iterdir())

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
        runtime.use(tuple(Keep(stage=i, mode="disk") for i in range(4)))
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


def test_host_offload_is_no_mode_of_a_cpu_model():
    with pytest.raises(ValueError, match=r"^offload: 'host' moves nothing for a model on the CPU"):
        auto_checkpoint(mlp(8, 4), 0.5, torch.randn(2, 8), offload="host")
    with pytest.raises(ValueError, match=r"^offload: got 'tape'"):
        auto_checkpoint(mlp(8, 4), 0.5, torch.randn(2, 8), offload="tape")


class Drifting(nn.Module):
    """Adds a global that changes between the two runs."""

    drift = 0.0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        Drifting.drift += 1.0
        return self.linear((x + Drifting.drift).tanh()).tanh()


class Reshaping(Drifting):
    """Saves tensors of another shape in the second run."""

    def forward(self, x):
        Drifting.drift += 1.0
        rows = 2 if Drifting.drift % 2 else 3
        return x + self.linear(x[:rows].tanh()).sum()


@pytest.mark.parametrize("level", ["checksum", "hash"])
def test_changed_values_are_found_and_named(level):
    model, x = nn.Sequential(nn.Linear(64, 64), Drifting(), nn.Linear(64, 64)), torch.randn(64, 64)
    with runtime_of(model, determinism=Determinism(level)) as runtime:
        runtime.use(every_stage(3))

        with pytest.raises(RecomputeDiverged, match=r"^1: saved tensor \d differs in the second run") as caught:
            step(model, (x,))

    assert caught.value.layer == "1"
    assert caught.value.tensor >= 0


def test_changed_shapes_are_found_by_metadata_and_values_are_not():
    x = torch.randn(4, 64)
    model = nn.Sequential(nn.Linear(64, 64), Reshaping(), nn.Linear(64, 64))
    with runtime_of(model, determinism=Determinism.METADATA) as runtime:
        runtime.use(every_stage(3))
        with pytest.raises(RecomputeDiverged, match=r"^1: saved tensor"):
            step(model, (x,))

    model = nn.Sequential(nn.Linear(64, 64), Drifting(), nn.Linear(64, 64))
    with runtime_of(model, determinism=Determinism.METADATA) as runtime:
        runtime.use(every_stage(3))
        step(model, (x,))


def test_a_different_number_of_tensors_is_found_even_when_the_dial_is_off():
    class Growing(Drifting):
        def forward(self, x):
            Drifting.drift += 1.0
            return x.tanh() if Drifting.drift % 2 else x.tanh().tanh().sigmoid()

    Drifting.drift = 1.0
    model, x = nn.Sequential(nn.Linear(64, 64), Growing(), nn.Linear(64, 64)), torch.randn(4, 64)
    with runtime_of(model, determinism=Determinism.OFF) as runtime:
        runtime.use(every_stage(3))
        with pytest.raises(RecomputeDiverged, match=r"only 1 tensors are saved"):
            step(model, (x,))


@pytest.mark.parametrize("level", list(Determinism))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool, torch.int64])
def test_fingerprints_are_equal_for_equal_bits_even_nan(level, dtype):
    fingerprint = fingerprint_of(level)
    tensor = torch.ones(130, 2).to(dtype)
    if dtype.is_floating_point:
        tensor[0, 0] = float("nan")

    if fingerprint is None:
        assert level is Determinism.OFF
        return
    assert fingerprint(tensor) == fingerprint(tensor.clone())
    assert fingerprint(tensor.t()) != fingerprint(tensor)


def test_statistics_tell_what_happened_per_layer():
    model, x = mlp(16, 4), torch.randn(8, 16)
    with runtime_of(model) as runtime:
        runtime.use((Region(start=0, stop=1, body=(Keep(stage=0), Keep(stage=1))), Keep(stage=2), Keep(stage=3)))
        step(model, (x,))
        statistics = runtime.statistics

    layers = statistics.layers()
    assert layers["0"].recomputes == layers["1"].recomputes == 1
    assert "2" not in layers
    assert layers["0"].bytes_saved > 0
    assert layers["0"].hits > 0
    assert layers["1"].seconds > 0
    loaded = json.loads(statistics.to_json())
    assert loaded["layers"]["1"]["recomputes"] == 1
    assert len(statistics.timeline().splitlines()) == 2
    statistics.reset()
    assert statistics.layers() == {}


def test_statistics_lose_no_update_under_threads():
    from model_checkpoint.recompute.statistics import RecomputeStatistics

    statistics = RecomputeStatistics()

    def hammer():
        for _ in range(500):
            statistics.hit("a")
            statistics.recomputed("a", 0.001)
            statistics.dropped("a", 2)

    workers = [threading.Thread(target=hammer) for _ in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    record = statistics.layers()["a"]
    assert (record.hits, record.recomputes, record.bytes_saved) == (8000, 8000, 16000)


def test_a_plan_survives_json_and_is_reused_without_profiling():
    torch.manual_seed(0)
    model, x = mlp(32, 8), torch.randn(32, 32)
    twin = copy.deepcopy(model)
    auto_checkpoint(model, 0.4, x)
    data = json.loads(json.dumps(model.plan.to_dict()))
    calls = []
    twin[0].register_forward_hook(lambda *_: calls.append(1))

    auto_checkpoint(twin, plan=data, sample_input=x)

    assert len(calls) == 1
    assert twin.plan.schedule == model.plan.schedule
    assert twin.plan.peak_bytes == model.plan.peak_bytes
    assert Plan.from_dict(data) == Plan.from_dict(twin.plan.to_dict())
    assert_same_step(step(twin, (x,)), step(model, (x,)))
    assert sum(r.recomputes for r in twin.plan.statistics.layers().values()) > 0


def test_a_plan_made_in_evaluation_mode_is_safe_for_training():
    """In evaluation no batch norm statistics move, so the plan has not seen that they do."""
    torch.manual_seed(0)
    build, make_inputs = FAMILIES["cnn"]
    model, inputs = build().eval(), make_inputs()
    auto_checkpoint(model, 1.0, inputs)
    auto_checkpoint(model, model.plan.floor_bytes, profile=model.plan.profile)
    data = model.plan.to_dict()
    plain, twin = build().train(), build().train()
    twin.load_state_dict(plain.state_dict())

    auto_checkpoint(twin, plan=data, sample_input=inputs)

    assert_same_step(step(twin, inputs), step(plain, inputs))
    model.train()
    plain.load_state_dict(model.state_dict())
    assert_same_step(step(model, inputs), step(plain, inputs))


def test_a_plan_for_another_model_is_refused():
    auto_checkpoint(model := mlp(16, 6), 0.5, torch.randn(8, 16))
    data = model.plan.to_dict()

    with pytest.raises(PlanMismatch, match=r"^plan: made for other layers"):
        auto_checkpoint(mlp(16, 7), plan=data, sample_input=torch.randn(8, 16))
    with pytest.raises(PlanMismatch, match=r"^plan: version is 99"):
        auto_checkpoint(mlp(16, 6), plan={**data, "version": 99}, sample_input=torch.randn(8, 16))


def test_pareto_is_a_table_and_a_picture(tmp_path):
    torch.manual_seed(0)
    model, x = mlp(32, 8), torch.randn(64, 32)
    auto_checkpoint(model, 0.4, x)
    pareto = model.plan.pareto()

    svg, png = pareto.save(tmp_path / "front.svg"), pareto.save(tmp_path / "front.png")

    assert len(str(pareto).splitlines()) == len(pareto.rows) + 1
    assert any(row.measured for row in pareto.rows)
    assert svg.read_text().startswith("<svg")
    assert svg.read_text().count("<circle") == len(pareto.rows)
    assert png.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"is no picture"):
        pareto.save(tmp_path / "front.gif")


def test_a_thread_of_its_own_can_train_a_patched_model():
    torch.manual_seed(0)
    models = [mlp(16, 4) for _ in range(3)]
    x = torch.randn(8, 16)
    expected = [step(copy.deepcopy(model), (x,)) for model in models]
    failures = []

    def train(model, want):
        with runtime_of(model) as runtime:
            runtime.use(every_stage(4))
            for _ in range(10):
                model.zero_grad()
                model(x).pow(2).mean().backward()
                if not all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), want[1], strict=True)):
                    failures.append(model)

    workers = [threading.Thread(target=train, args=pair) for pair in zip(models, expected, strict=True)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)

    assert failures == []
