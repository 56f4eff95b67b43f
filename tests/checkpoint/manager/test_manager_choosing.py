"""Best, latest and any expression, by flags that survive; resuming from what is healthy; lineage and audit."""

import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import model_checkpoint as mc
from model_checkpoint.checkpoint import CheckpointUnknown, EnhancedCheckpointManager
from model_checkpoint.errors import (
    CheckpointWarning,
    CorruptedCheckpoint,
    NoHealthyCheckpoint,
    OptionInvalid,
    StructureMismatch,
)
from model_checkpoint.hooks import HookEvent
from model_checkpoint.tracking import ExperimentTracker


def saved(manager, rows, **options):
    return [
        manager.save_checkpoint({"w": np.full(2, float(step))}, step=step, **{**options, **row})
        for step, row in enumerate(rows)
    ]


def damage(manager, id):
    row = manager.get_checkpoint(id)
    (path,) = Path(row.file_path).glob("*.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


# --- the best --------------------------------------------------------------------------------------------------------


def test_the_best_of_each_kind_is_flagged_and_loaded(served):
    ids = saved(
        served,
        [
            {"loss": 0.5, "val_loss": 0.9, "metrics": {"accuracy": 0.1}},
            {"loss": 0.4, "val_loss": 0.7, "metrics": {"accuracy": 0.3}},
            {"loss": 0.6, "val_loss": 0.8, "metrics": {"accuracy": 0.2}},
        ],
    )

    for kind in ("best_loss", "best_val_loss", "best_metric", "accuracy", "max:accuracy", "max:accuracy - val_loss"):
        found = served.load_checkpoint(checkpoint_type=kind)
        assert found["_checkpoint_metadata"]["id"] == ids[1], kind
    assert served.load_checkpoint(checkpoint_type="min:accuracy")["_checkpoint_metadata"]["id"] == ids[0]
    assert served.load_checkpoint()["_checkpoint_metadata"]["id"] == ids[2]
    assert [row.id for row in served.list_checkpoints(best_only=True)] == [ids[1]]


def test_the_best_survives_a_restart_and_a_worse_one_does_not_take_its_place(make):
    first = make()
    ids = saved(first, [{"val_loss": 0.3}, {"val_loss": 0.5}])

    second = make()
    second.save_checkpoint({"w": np.zeros(2)}, step=9, val_loss=0.4)

    assert second.load_checkpoint(checkpoint_type="best_val_loss")["_checkpoint_metadata"]["id"] == ids[0]
    assert [row.id for row in second.list_checkpoints() if row.is_best_val_loss] == [ids[0]]


def test_nan_is_never_the_best_and_of_equals_the_newest_is(manager):
    ids = saved(manager, [{"val_loss": math.nan}, {"val_loss": 0.5}, {"val_loss": 0.5}, {"val_loss": math.nan}])

    assert manager.load_checkpoint(checkpoint_type="best_val_loss")["_checkpoint_metadata"]["id"] == ids[2]
    assert [row.id for row in manager.list_checkpoints(best_only=True)] == [ids[2]]


def test_an_expression_can_be_the_metric_that_is_flagged(make):
    manager = make(best_metric="val_f1 - 0.1*latency")

    ids = saved(manager, [{"metrics": {"val_f1": f1, "latency": ms}} for f1, ms in ((0.9, 5), (0.8, 1), (0.85, 4))])

    assert [row.id for row in manager.list_checkpoints() if row.is_best_metric] == [ids[1]]
    assert manager.load_checkpoint(checkpoint_type="best_metric")["_checkpoint_metadata"]["id"] == ids[1]


def test_which_metric_is_meant_is_never_guessed(manager):
    saved(manager, [{"metrics": {"a": 1.0, "b": 2.0}}])

    with pytest.raises(CheckpointUnknown, match=r"not said which metric that is, .* a, b"):
        manager.load_checkpoint(checkpoint_type="best_metric")
    with pytest.raises(CheckpointUnknown, match="no checkpoint that is 'best_loss'"):
        manager.load_checkpoint(checkpoint_type="best_loss")


def test_whoever_gets_worse_news_first_hears_of_a_new_best_only_when_there_is_one(manager):
    heard = []
    manager.register_hook(
        "best",
        lambda context: heard.append((context.get("best"), context.get("val_loss"))),
        events=[HookEvent.ON_BEST_MODEL_UPDATE],
    )

    saved(manager, [{"val_loss": 0.5}, {"val_loss": 0.6}, {"val_loss": 0.4}])

    assert heard == [(("val_loss",), 0.5), (("val_loss",), 0.4)]


def test_cached_rows_follow_the_flags(manager):
    ids = saved(manager, [{"val_loss": 0.5}])
    assert manager.get_checkpoint(ids[0]).is_best_val_loss

    manager.save_checkpoint({"w": np.zeros(2)}, step=5, val_loss=0.1)

    assert not manager.get_checkpoint(ids[0]).is_best_val_loss


def test_cache_ttl_is_how_long_a_row_is_believed(make):
    manager = make(cache_ttl=0.001)
    (id,) = saved(manager, [{}])
    manager.connection.update_checkpoint(id, notes="by somebody else")

    assert manager.get_checkpoint(id).notes in ("", "by somebody else")
    import time

    time.sleep(0.01)
    assert manager.get_checkpoint(id).notes == "by somebody else"


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_never_loaded_and_the_catalog_learns_of_it(manager):
    (id,) = saved(manager, [{}])
    damage(manager, id)

    with pytest.raises(CorruptedCheckpoint, match="does not have the recorded digest"):
        manager.load_checkpoint(id)
    assert manager.get_checkpoint(id).health == "damaged"
    assert next((one.action, one.outcome) for one in manager.audit(id).items) == ("load", "failed")


def test_verification_finds_what_is_damaged_and_only_that(manager):
    ids, heard = saved(manager, [{}, {}, {}]), []
    manager.register_hook("told", lambda c: heard.append(c.checkpoint_id), events=[HookEvent.ON_INTEGRITY_FAILURE])
    damage(manager, ids[1])

    report = manager.verify_experiment_integrity()

    assert {one.checkpoint_id: one.ok for one in report.verdicts} == {ids[0]: True, ids[1]: False, ids[2]: True}
    assert heard == [ids[1]]
    assert [manager.get_checkpoint(id).health for id in ids] == ["healthy", "damaged", "healthy"]


def test_a_damaged_file_is_mended_from_parity_bit_for_bit(make):
    manager = make(parity="xor")
    (id,) = saved(manager, [{}])
    mc.finish_saves(manager.root)
    before = manager.load_checkpoint(id)["model_state_dict"]["w"]
    damage(manager, id)

    assert not manager.verify_experiment_integrity().ok
    report = manager.verify_experiment_integrity(repair=True)

    assert (report.ok, report.verdicts[0].repaired) == (True, True)
    np.testing.assert_array_equal(manager.load_checkpoint(id)["model_state_dict"]["w"], before)
    assert [one.subject for one in manager.audit(action="repair").items] == [id]


# --- resuming --------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("backend", ["native", "pytorch", "safetensors"])
def test_a_resumed_run_goes_on_bit_for_bit(make, backend):
    model, optimizer = model_and_optimizer(0)
    manager = make(storage_backend=backend)
    train(model, optimizer, 3)
    manager.save_checkpoint(model, optimizer, step=3)
    expected = train(model, optimizer, 3)

    other, theirs = model_and_optimizer(99)
    report = make(storage_backend=backend).resume(other, theirs)

    assert train(other, theirs, 3) == expected
    assert (report.step, report.restored, report.complete) == (3, ("model", "optimizer", "rng"), True)


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


def test_a_run_that_goes_on_from_another_one_remembers_where_it_branched(make, sqlite_url, run):
    ids = saved(make(), [{"val_loss": 0.5}, {"val_loss": 0.2}, {"val_loss": 0.4}])

    with ExperimentTracker("branch", database_url=sqlite_url) as other:
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


# --- the tracker's database ------------------------------------------------------------------------------------------


def test_the_manager_takes_its_trackers_database(make, run, tmp_path):
    manager = make()

    assert manager.connection is run.connection
    with pytest.raises(OptionInvalid, match=r"leave database_url='sqlite:///other\.db' out"):
        make(database_url="sqlite:///other.db")


def test_without_a_tracker_the_catalog_lies_beside_the_checkpoints(tmp_path):
    from model_checkpoint.database import Experiment

    with EnhancedCheckpointManager(None, f"{tmp_path}/root") as manager:
        manager.connection.save_experiment(Experiment(id="r1", name="by hand"))
        id = manager.save_checkpoint({"w": np.ones(2)}, step=1, experiment_id="r1")

    assert (tmp_path / "root" / "catalog.db").exists()
    with EnhancedCheckpointManager(None, f"{tmp_path}/root") as again:
        assert again.load_checkpoint(experiment_id="r1")["_checkpoint_metadata"]["id"] == id
    with pytest.raises(OptionInvalid, match="a catalog cannot lie beside"):
        EnhancedCheckpointManager(None, "memory://no-place-for-a-catalog")


def test_every_checkpoint_of_the_manager_is_one_of_the_front_door_too(manager):
    ids = saved(manager, [{"val_loss": 0.5}, {"val_loss": 0.2}])

    assert mc.load(manager.root, best="val_loss")["model"]["w"].tolist() == [1.0, 1.0]
    assert [info.id for info in mc.list_checkpoints(manager.root)] == ids[::-1]


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
