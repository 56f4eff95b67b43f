"""Resuming from what is healthy, in order of choice; what was missing or passed over is told; what prepares itself."""

import random

import numpy as np
import pytest
import torch
from tests.checkpoint.manager.test_manager_choosing import FragileBackend, damage, saved

from model_checkpoint.errors import CheckpointWarning, NoHealthyCheckpoint, StructureMismatch
from model_checkpoint.tracking import ExperimentTracker


def model_and_optimizer(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def train(model, optimizer, steps):
    losses = []
    for _ in range(steps):
        loss = model(torch.rand(2, 3)).square().sum() * random.random() * np.random.rand()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Batches:
    """A loader that knows its place."""

    def __init__(self):
        self.data, self.place = torch.arange(60.0).reshape(10, 2, 3) / 60, 0

    def __next__(self):
        self.place += 1
        return self.data[self.place - 1]

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class Training:
    """All that a step of a run changes."""

    def __init__(self, seed):
        self.model, self.optimizer = model_and_optimizer(seed)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.scaler, self.dataloader = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2), Batches()

    def steps(self, count):
        return [self.step() for _ in range(count)]

    def step(self):
        loss = self.model(next(self.dataloader) + torch.rand(3)).square().sum() * random.random() * np.random.rand()
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        return loss.item(), self.scaler.get_scale(), self.scheduler.get_last_lr(), self.dataloader.place


@pytest.mark.parametrize("backend", ["native", "pytorch", "safetensors"])
def test_a_resumed_run_goes_on_bit_for_bit(make, backend):
    """With every part that a step changes, and numbers drawn from all three generators."""
    run, other = Training(0), Training(99)
    run.steps(3)
    make(storage_backend=backend).save_checkpoint(step=3, **vars(run))
    expected = run.steps(3)
    other.steps(1)

    report = make(storage_backend=backend).resume(**vars(other))

    assert other.steps(3) == expected
    assert (report.step, report.complete) == (3, True)
    assert set(report.restored) == {"model", "optimizer", "scheduler", "scaler", "dataloader", "rng"}


@pytest.mark.usefixtures("database_url")
def test_a_resume_falls_back_to_the_newest_healthy_one_and_says_so(manager):
    ids = saved(manager, [{}, {}, {}])
    for id in ids[1:]:
        damage(manager, id)
    live = {"w": np.full(2, -1.0)}

    with pytest.warns(CheckpointWarning, match="passed over"):
        report = manager.resume(live)

    assert (report.checkpoint.id, report.step) == (ids[0], 0)
    assert [name for name, _ in report.passed_over] == [manager.get_checkpoint(id).name for id in reversed(ids[1:])]
    np.testing.assert_array_equal(live["w"], np.zeros(2))


@pytest.mark.parametrize("wanted", ["best_val_loss", "best_metric", "max:accuracy - val_loss"])
@pytest.mark.usefixtures("database_url")
def test_a_damaged_best_is_passed_over_for_the_next_best_in_order(manager, wanted):
    """Whoever goes on from the best means the best that can be had."""
    rows = [{"val_loss": loss, "metrics": {"accuracy": 1 - loss}} for loss in (0.4, 0.3, 0.1, 0.2, 0.5)]
    ids = saved(manager, rows)
    for id in (ids[2], ids[3]):
        damage(manager, id)
    live = {"w": np.full(2, -1.0)}

    with pytest.warns(CheckpointWarning, match="passed over"):
        report = manager.resume(live, checkpoint_type=wanted)

    assert report.checkpoint.id == ids[1]
    assert [name for name, _ in report.passed_over] == [manager.get_checkpoint(id).name for id in (ids[2], ids[3])]
    assert live["w"].tolist() == [1.0, 1.0]


def test_a_backend_that_fails_on_a_checkpoint_is_passed_over_and_told(make):
    manager = make(storage_backend=FragileBackend)
    ids = saved(manager, [{}, {}], save_rng=False)
    live = {"w": np.full(2, -1.0)}

    with pytest.warns(CheckpointWarning, match=r"FragileBackend' could not read what it wrote \(EOFError"):
        report = manager.resume(live, restore_rng=False)

    assert (report.checkpoint.id, live["w"].tolist()) == (ids[0], [0.0, 0.0])
    with pytest.raises(EOFError, match="ran out"):
        manager.load_checkpoint(ids[1])


def test_what_a_checkpoint_lacks_is_told_and_the_rest_restored(manager):
    manager.save_checkpoint({"w": np.ones(2)}, step=1, save_rng=False, parts={"ema": {"w": np.ones(2)}})
    live, scaler = {"w": np.zeros(2)}, torch.amp.GradScaler("cpu")

    with pytest.warns(CheckpointWarning, match="missing: scaler, rng"):
        report = manager.resume(live, scaler=scaler)

    assert (report.restored, report.missing, report.unused) == (("model",), ("scaler", "rng"), ("ema",))
    np.testing.assert_array_equal(live["w"], np.ones(2))


def test_nothing_to_resume_from_is_no_error_and_nothing_healthy_is(manager):
    live = {"w": np.zeros(2)}
    assert not manager.resume(live)
    (id,) = saved(manager, [{}])
    damage(manager, id)

    with pytest.raises(NoHealthyCheckpoint, match="none of 1 checkpoints"):
        manager.resume(live)


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(manager):
    saved(manager, [{}, {}])
    live = {"w": np.full(3, 7.0)}

    with pytest.raises(StructureMismatch, match="shape"):
        manager.resume(live)
    np.testing.assert_array_equal(live["w"], np.full(3, 7.0))


@pytest.mark.usefixtures("database_url")
def test_a_run_that_goes_on_from_another_one_remembers_where_it_branched(make, catalog_url, run):
    ids = saved(make(), [{"val_loss": 0.5}, {"val_loss": 0.2}, {"val_loss": 0.4}])

    with ExperimentTracker("branch", database_url=catalog_url) as other:
        manager = make(tracker=other)
        live = {"w": np.zeros(2)}
        manager.resume(live, experiment_id=run.experiment_id, checkpoint_type="best_val_loss")
        new = manager.save_checkpoint(live, step=5)

    edges = [(one.parent, one.child, one.kind, one.step) for one in manager.lineage(new)]
    assert edges == [
        (run.experiment_id, ids[1], "saved", 1),
        (ids[1], other.experiment_id, "resumed", 1),
        (other.experiment_id, new, "saved", 5),
    ]


# --- what prepares itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["native", "pytorch"])
def test_a_mixed_precision_run_saved_in_fallback_resumes_in_one_call(make, backend):
    from model_checkpoint.precision import MixedPrecisionOptimizer

    def mixed(seed):
        torch.manual_seed(seed)
        model = torch.nn.Linear(4, 2)
        return model, MixedPrecisionOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    model, optimizer = mixed(0)
    optimizer.fallback_to_fp32()
    manager = make(storage_backend=backend)
    manager.save_checkpoint(model, optimizer, step=1)

    other, theirs = mixed(1)
    report = manager.resume(other, theirs)

    assert theirs.has_fallback
    assert other.weight.dtype == model.weight.dtype == torch.float32
    assert torch.equal(other.weight, model.weight)
    assert report.complete


@pytest.mark.parametrize("backend", ["native", "pytorch", "safetensors"])
def test_a_recompute_plan_travels_with_the_checkpoint_and_is_put_in_force(make, backend):
    from model_checkpoint.recompute import auto_checkpoint

    def deep():
        return torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()) for _ in range(6)))

    model = auto_checkpoint(deep(), 0.6, torch.randn(32, 16))
    manager = make(storage_backend=backend)
    id = manager.save_checkpoint(model, step=1)
    fresh = deep()

    report = manager.resume(fresh)

    assert "recompute_plan" in manager.get_checkpoint(id).parts
    assert report.restored == ("model", "rng", "recompute_plan")
    assert fresh.plan.to_dict() == model.plan.to_dict()
