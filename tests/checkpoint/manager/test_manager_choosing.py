"""Best, latest and any expression, by flags that survive; what is damaged is found and never loaded."""

import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from tests.ground.stored.stored_files import flip

import model_checkpoint as mc
from model_checkpoint.backend import BaseStorageBackend
from model_checkpoint.checkpoint import CheckpointUnknown, EnhancedCheckpointManager
from model_checkpoint.errors import (
    CorruptedCheckpoint,
    OptionInvalid,
)
from model_checkpoint.hooks import HookEvent


def saved(manager, rows, **options):
    return [
        manager.save_checkpoint({"w": np.full(2, float(step))}, step=step, **{**options, **row})
        for step, row in enumerate(rows)
    ]


def damage(manager, id):
    row = manager.get_checkpoint(id)
    (path,) = Path(row.file_path).glob("*.safetensors")
    flip(path)


class FragileBackend(BaseStorageBackend):
    """A backend that cannot make sense of some of its files."""

    def save_checkpoint(self, data, path):
        Path(path).write_bytes(pickle.dumps(data))

    def load_checkpoint(self, path, device=None):
        state = pickle.loads(Path(path).read_bytes())
        if state["model_state_dict"]["w"][0] > 0:
            raise EOFError("ran out of input")
        return state


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


@pytest.mark.usefixtures("database_url")
def test_the_best_survives_a_restart_and_a_worse_one_does_not_take_its_place(make):
    first = make()
    ids = saved(first, [{"val_loss": 0.3}, {"val_loss": 0.5}])

    second = make()
    second.save_checkpoint({"w": np.zeros(2)}, step=9, val_loss=0.4)

    assert second.load_checkpoint(checkpoint_type="best_val_loss")["_checkpoint_metadata"]["id"] == ids[0]
    assert [row.id for row in second.list_checkpoints() if row.is_best_val_loss] == [ids[0]]


@pytest.mark.usefixtures("database_url")
def test_nan_is_never_the_best_and_of_equals_the_newest_is(manager):
    ids = saved(manager, [{"val_loss": math.nan}, {"val_loss": 0.5}, {"val_loss": 0.5}, {"val_loss": math.nan}])

    assert manager.load_checkpoint(checkpoint_type="best_val_loss")["_checkpoint_metadata"]["id"] == ids[2]
    assert [row.id for row in manager.list_checkpoints(best_only=True)] == [ids[2]]


@pytest.mark.usefixtures("database_url")
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


@pytest.mark.usefixtures("database_url")
def test_cached_rows_follow_the_flags(manager):
    ids = saved(manager, [{"val_loss": 0.5}])
    assert manager.get_checkpoint(ids[0]).is_best_val_loss

    manager.save_checkpoint({"w": np.zeros(2)}, step=5, val_loss=0.1)

    assert not manager.get_checkpoint(ids[0]).is_best_val_loss


@pytest.mark.usefixtures("database_url")
def test_what_another_manager_changed_is_not_undone_by_what_was_cached(make):
    here, elsewhere = make(cache_ttl=3600.0), make()
    (id,) = saved(here, [{}])
    here.get_checkpoint(id)

    elsewhere.tag(id, "paper")
    here.tag(id, "release")

    assert set(elsewhere.connection.get_checkpoint(id).tags) == {"paper", "release"}
    elsewhere.delete_checkpoint(id)
    with pytest.raises(CheckpointUnknown, match="was deleted"):
        here.pin(id)


def test_a_row_is_believed_for_moments_unless_told_otherwise(manager):
    """Others change flags, health and marks too, and nobody is told."""
    assert manager._services.caches.checkpoints.metadata.default_ttl <= 2.0


def test_cache_ttl_is_how_long_a_row_is_believed(make):
    manager = make(cache_ttl=0.001)
    (id,) = saved(manager, [{}])
    manager.connection.update_checkpoint(id, notes="by somebody else")

    assert manager.get_checkpoint(id).notes in ("", "by somebody else")
    import time

    time.sleep(0.01)
    assert manager.get_checkpoint(id).notes == "by somebody else"


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("database_url")
def test_a_damaged_checkpoint_is_never_loaded_and_the_catalog_learns_of_it(manager):
    (id,) = saved(manager, [{}])
    damage(manager, id)

    with pytest.raises(CorruptedCheckpoint, match="does not have the recorded digest"):
        manager.load_checkpoint(id)
    assert manager.get_checkpoint(id).health == "damaged"
    assert next((one.action, one.outcome) for one in manager.audit(id).items) == ("load", "failed")


@pytest.mark.usefixtures("database_url")
def test_verification_finds_what_is_damaged_and_only_that(manager):
    ids, heard = saved(manager, [{}, {}, {}]), []
    manager.register_hook("told", lambda c: heard.append(c.checkpoint_id), events=[HookEvent.ON_INTEGRITY_FAILURE])
    damage(manager, ids[1])

    report = manager.verify_experiment_integrity()

    assert {one.checkpoint_id: one.ok for one in report.verdicts} == {ids[0]: True, ids[1]: False, ids[2]: True}
    assert heard == [ids[1]]
    assert [manager.get_checkpoint(id).health for id in ids] == ["healthy", "damaged", "healthy"]


def test_a_file_with_the_right_digest_that_its_reader_refuses_is_not_healthy(make):
    """Of files of other backends only these can say whether they can be loaded."""
    manager = make(storage_backend=FragileBackend)
    good, bad = saved(manager, [{}, {}], save_rng=False)

    verdicts = {one.checkpoint_id: one for one in manager.verify_experiment_integrity().verdicts}

    assert (verdicts[good].ok, verdicts[good].check("loadable").passed) == (True, True)
    assert (verdicts[bad].ok, verdicts[bad].check("digest").passed) == (False, True)
    assert verdicts[bad].problems == ("EOFError: ran out of input",)
    nobody = {one.checkpoint_id: one for one in make().verify_experiment_integrity().verdicts}[bad]
    assert (nobody.ok, nobody.check("loadable").passed) == (True, None)


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


def test_an_id_nobody_has_is_refused(manager):
    with pytest.raises(CheckpointUnknown, match="is not in"):
        manager.load_checkpoint("nothing")
    with pytest.raises(ValueError, match="no checkpoint that is 'latest'"):
        manager.load_checkpoint()
    assert issubclass(CheckpointUnknown, mc.CheckpointException)
