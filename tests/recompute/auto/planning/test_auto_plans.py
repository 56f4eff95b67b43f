"""Plans and what they tell: reuse, pictures, statistics."""

import copy
import json
import threading
from dataclasses import replace

import pytest
import torch
from tests.recompute.auto.auto_models import (
    FAMILIES,
    assert_same_step,
    cnn,
    every_stage,
    mlp,
    runtime_of,
    spill_files,
    step,
    transformer,
)
from torch import nn

import model_checkpoint as mc
from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.auto.common.errors import PlanMismatch
from model_checkpoint.recompute.auto.planning.plan import Plan
from model_checkpoint.recompute.auto.planning.schedule import Keep, Region


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
    from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics

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


def test_a_plan_travels_with_a_checkpoint_and_needs_no_sample(tmp_path):
    torch.manual_seed(0)
    model, x = cnn(4, 6), torch.randn(2, 3, 8, 8)
    auto_checkpoint(model, 0.6, x)
    mc.save(tmp_path / "run", {"model": model, "plan": model.plan.to_dict()}, step=1)
    twin, calls = cnn(4, 6), []
    twin[0].register_forward_hook(lambda *_: calls.append(1))

    state = mc.load(tmp_path / "run")
    twin.load_state_dict(state["model"])
    auto_checkpoint(twin, plan=state["plan"])

    assert calls == []
    assert twin.plan == model.plan
    assert twin.plan.explain() == model.plan.explain()
    assert_same_step(step(twin, (x,)), step(model, (x,)))
    assert sum(record.recomputes for record in twin.plan.statistics.layers().values()) > 0


def test_a_plan_is_refused_by_name_when_a_layer_differs():
    auto_checkpoint(model := mlp(16, 9), 0.5, torch.randn(8, 16))
    data = model.plan.to_dict()
    wider, other = mlp(16, 9), mlp(16, 9)
    wider[3] = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    other[5] = nn.Identity()

    with pytest.raises(PlanMismatch, match=r"^plan: made for other layers: '3' is another layer here, a Sequential"):
        auto_checkpoint(wider, plan=data)
    with pytest.raises(PlanMismatch, match=r"^plan: made for other layers: '5' is another layer here, a Identity"):
        auto_checkpoint(other, plan=data)
    with pytest.raises(PlanMismatch, match=r"^plan: made for other layers: '8' is not in this model"):
        auto_checkpoint(mlp(16, 8), plan=data)
    with pytest.raises(PlanMismatch, match=r"^plan: made for other layers: the 9 planned layers are there, but"):
        auto_checkpoint(mlp(16, 10), plan=data)
    assert all("plan" not in refused.__dict__ for refused in (wider, other))


def leanest_again(model, x):
    """Apply a model's leanest plan to a copy of it, and compare a step of both."""
    twin = copy.deepcopy(model)
    auto_checkpoint(model, 1.0, x)
    auto_checkpoint(model, model.plan.floor_bytes, profile=model.plan.profile)

    auto_checkpoint(twin, plan=model.plan.to_dict())

    assert twin.plan.schedule == model.plan.schedule
    assert_same_step(step(twin, (x,)), step(model, (x,)))


def test_a_plan_finds_a_module_used_twice():
    torch.manual_seed(0)
    shared = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    leanest_again(nn.Sequential(shared, nn.Linear(8, 8), shared, nn.Linear(8, 8)), torch.randn(32, 8))


@pytest.mark.filterwarnings("ignore::model_checkpoint.recompute.auto.common.errors.AutoCheckpointWarning")
def test_a_plan_finds_a_model_that_is_one_stage():
    leanest_again(nn.Linear(8, 8), torch.randn(32, 8))


def test_a_plan_with_a_sample_also_checks_the_order_of_calls():
    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
            self.order = (0, 1, 2, 3)

        def forward(self, x):
            for number in self.order:
                x = self.layers[number](x).tanh()
            return x

    model, x = Chosen(), torch.randn(4, 8)
    auto_checkpoint(model, 1.0, x)
    data, turned = model.plan.to_dict(), Chosen()
    turned.order = (3, 2, 1, 0)

    with pytest.raises(PlanMismatch, match=r"^plan: made for other layers: the first difference is at 'layers.0'"):
        auto_checkpoint(turned, plan=data, sample_input=x)


def test_a_plan_that_offloads_does_so_again(tmp_path):
    torch.manual_seed(0)
    model, x = transformer(32, 6, rate=0.0), torch.randn(4, 16, 32)
    auto_checkpoint(model, 1.0, x, offload="disk", spill_dir=tmp_path / "one")
    plan = replace(model.plan, schedule=tuple(Keep(stage=i, mode="disk") for i in range(6)))
    model.plan.remove()

    auto_checkpoint(model, plan=plan.to_dict(), spill_dir=tmp_path / "two")
    output = model(x)

    assert len(spill_files(tmp_path / "two")) == 6
    assert "offloaded" in model.plan.fates()
    del output
    assert spill_files(tmp_path / "two") == []
