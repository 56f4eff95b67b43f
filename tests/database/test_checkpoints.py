"""Checkpoints are found newest first and best first, at a cost that does not depend on how many there are."""

import dataclasses
import math
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment, RowRefused
from model_checkpoint.errors import OptionInvalid, WrongReference

NAN, INF = float("nan"), float("inf")


def saved(db, id="c1", **fields):
    return db.save_checkpoint(Checkpoint(**{"id": id, "experiment_id": "r1", **fields}))


def test_a_checkpoint_comes_back_as_it_was(db):
    whole = Checkpoint(
        id="c1",
        experiment_id="r1",
        epoch=3,
        step=2**40,
        checkpoint_type="best",
        file_path="/runs/é/" + "x" * 5000,
        file_size=2**45,
        checksum="ab" * 32,
        model_name="gpt",
        loss=INF,
        val_loss=-0.25,
        notes="n",
        is_best_metric=True,
        metrics={"acc": 0.1, "big": 10**15, "bad": INF},
        metadata={"a": [1, {"b": None}], "bad": -INF},
        name="step-7",
        root="s3://bucket/runs",
        backend="safetensors",
        parts=["model", "optimizer"],
        tags=["release"],
        pinned=True,
        unique_bytes=7,
        health="healthy",
        verified_at=123.5,
    )

    db.save_checkpoint(whole)

    assert db.get_checkpoint("c1") == whole


def test_nan_in_a_checkpoint_stays_nan(db):
    saved(db, loss=NAN, metrics={"acc": NAN}, metadata={"x": NAN})

    there = db.get_checkpoint("c1")
    assert all(math.isnan(one) for one in (there.loss, there.metrics["acc"], there.metadata["x"]))
    assert there.val_loss is None


def test_a_checkpoint_of_no_run_is_refused_and_leaves_nothing(db):
    with pytest.raises(RowRefused, match=r"the database refused the row .*Nothing was written"):
        db.save_checkpoints([Checkpoint(id="c1", experiment_id="r1"), Checkpoint(id="c2", experiment_id="nobody")])

    assert db.get_checkpoint("c1") is None


def test_fields_no_database_would_keep_alike_are_refused_by_name(db):
    for fields, message in [
        ({"created_at": NAN}, "created at: must be a finite number, got nan"),
        ({"deleted_at": INF}, "deleted at: must be a finite number, got inf"),
        ({"tags": "release"}, r"tags: must be a list of words, got 'release'. Write \['release'\]"),
        ({"parts": [1]}, "parts: must be text, got int"),
        ({"metadata": [1]}, "metadata: must be a mapping, got list"),
        ({"metrics": {"acc": "high"}}, "checkpoint c1: metric 'acc': must be a number, got str"),
        ({"id": "x" * 65}, "checkpoint id: at most 64 characters, got 65"),
    ]:
        with pytest.raises(RowRefused, match=message):
            saved(db, **fields)

    assert db.page("r1").items == []


def test_newest_is_the_highest_step_then_the_latest_commit(db):
    for id, step, at in [("a", 5, 10.0), ("b", 7, 5.0), ("c", 7, 6.0), ("d", 1, 99.0)]:
        saved(db, id, step=step, created_at=at)

    assert [one.id for one in db.get_checkpoints_by_experiment("r1")] == ["c", "b", "a", "d"]
    assert db.latest("r1").id == "c"
    assert db.latest("nobody") is None


def test_checkpoints_are_listed_by_type_and_by_flag(db):
    for number in range(6):
        saved(db, f"c{number}", step=number, checkpoint_type="auto" if number % 2 else "manual")
    db.flag_best("r1", "loss", ["c1"])
    db.flag_best("r1", "metric", ["c4", "c1"])

    assert [one.id for one in db.get_checkpoints_by_experiment("r1", "auto")] == ["c5", "c3", "c1"]
    assert [one.id for one in db.get_checkpoints_by_experiment("r1", best_only=True)] == ["c4", "c1"]
    assert [one.id for one in db.get_checkpoints_by_experiment("r1", "auto", True)] == ["c1"]
    assert db.latest("r1", "manual").id == "c4"


def test_pages_of_checkpoints_meet_without_gap_or_overlap(db):
    db.save_checkpoints([Checkpoint(id=f"c{n:03}", experiment_id="r1", step=n // 4, created_at=1.0) for n in range(50)])

    ids, cursor = [], ""
    while True:
        page = db.page("r1", limit=7, after=cursor)
        ids += [one.id for one in page.items]
        cursor = page.next
        if not cursor:
            break

    assert ids == sorted((f"c{n:03}" for n in range(50)), reverse=True)


def test_the_best_is_chosen_by_value_then_by_age_and_never_nan(db):
    for step, acc in enumerate([0.5, NAN, 0.9, 0.9, INF, -INF, 0.1]):
        saved(db, f"c{step}", step=step, metrics={"acc": acc})

    assert [one.id for one in db.best("r1", "acc", "max", 10)] == ["c4", "c3", "c2", "c0", "c6", "c5"]
    assert [one.id for one in db.best("r1", "acc", "min", 3)] == ["c5", "c6", "c0"]
    assert db.best("r1", "other") == []
    assert db.best("nobody", "acc") == []


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.floats() | st.sampled_from([0.0, 1.0]), min_size=1, max_size=12))
def test_the_best_of_any_numbers_is_what_sorting_says(db, values):
    run = uuid.uuid4().hex
    db.save_experiment(Experiment(id=run, name="x"))
    rows = [
        Checkpoint(id=f"{run}-{n:02}", experiment_id=run, step=n, created_at=1.0, metrics={"m": value})
        for n, value in enumerate(values)
    ]
    db.save_checkpoints(rows)

    real = [one for one in rows if not math.isnan(one.metrics["m"])]
    lowest = sorted(real, key=lambda one: (one.metrics["m"], -one.step))
    highest = sorted(real, key=lambda one: (-one.metrics["m"], -one.step))
    assert [one.id for one in db.best(run, "m", "min", 99)] == [one.id for one in lowest]
    assert [one.id for one in db.best(run, "m", "max", 99)] == [one.id for one in highest]


def test_losses_are_metrics_too_and_win_over_metrics_of_their_name(db):
    saved(db, "c1", loss=0.5, metrics={"loss": 9.0})
    saved(db, "c2", loss=0.4, val_loss=1.0)

    assert [one.id for one in db.best("r1", "loss", k=2)] == ["c2", "c1"]
    assert [one.id for one in db.best("r1", "val_loss", k=2)] == ["c2"]


def test_what_is_asked_of_best_is_checked(lite):
    with pytest.raises(OptionInvalid, match="direction: must be 'min' or 'max', got 'up'"):
        lite.best("r1", "loss", "up")
    with pytest.raises(OptionInvalid, match="k: must be 1 or more, got 0"):
        lite.best("r1", "loss", k=0)
    with pytest.raises(OptionInvalid, match="kind: must be one of loss, val_loss, metric, got 'acc'"):
        lite.flag_best("r1", "acc", [])


def test_a_flag_moves_and_the_others_stay(db):
    for number in range(3):
        saved(db, f"c{number}", step=number)
    db.update_best_flags("r1", "c0", is_best_loss=True, is_best_metric=True)
    db.update_best_flags("r1", "c1", is_best_loss=True)

    flags = {one.id: (one.is_best_loss, one.is_best_val_loss, one.is_best_metric) for one in db.page("r1").items}
    assert flags == {"c0": (False, False, True), "c1": (True, False, False), "c2": (False, False, False)}


def test_a_flag_for_what_is_not_there_changes_none(db):
    db.save_experiment(Experiment(id="r2", name="other"))
    saved(db, "c1")
    saved(db, "d1", experiment_id="r2")
    db.flag_best("r1", "loss", ["c1"])

    with pytest.raises(RowRefused, match="experiment 'r1' has no checkpoint d1; no flag was changed"):
        db.flag_best("r1", "loss", ["d1"])

    assert db.get_checkpoint("c1").is_best_loss


def test_what_is_deleted_is_in_no_list_and_comes_back(db):
    saved(db, "c1", step=1, metrics={"acc": 0.9})
    saved(db, "c2", step=2, metrics={"acc": 0.8})
    db.flag_best("r1", "metric", ["c1"])

    gone = db.delete_checkpoint("c1")

    assert (gone.state, gone.is_best_metric) == ("deleted", False)
    assert db.delete_checkpoint("c1") == gone
    assert [one.id for one in db.page("r1").items] == ["c2"]
    assert [one.id for one in db.best("r1", "acc", "max", 2)] == ["c2"]
    assert [one.id for one in db.page("r1", state="deleted").items] == ["c1"]
    assert db.get_checkpoints_by_experiment("r1", state="deleted")[0].deleted_at is not None
    db.undelete_checkpoint("c1")
    assert [one.id for one in db.best("r1", "acc", "max", 2)] == ["c1", "c2"]
    assert db.get_checkpoint("c1") == dataclasses.replace(gone, state="committed", deleted_at=None)


def test_what_is_forgotten_is_gone(db):
    saved(db, "c1", metrics={"acc": 0.9})

    assert (db.forget_checkpoint("c1"), db.forget_checkpoint("c1")) == (True, False)
    assert db.get_checkpoint("c1") is None
    assert db.best("r1", "acc") == []


def test_changing_a_checkpoint_changes_what_it_is_chosen_by(db):
    saved(db, "c1", step=1, metrics={"acc": 0.1})
    saved(db, "c2", step=2, metrics={"acc": 0.5})

    db.update_checkpoint("c1", metrics={"acc": 0.9, "new": 1.0}, pinned=True)

    assert db.best("r1", "acc", "max")[0].id == "c1"
    assert db.best("r1", "new", "max")[0].pinned
    with pytest.raises(WrongReference, match="checkpoint 'nothing' is not in the catalog"):
        db.update_checkpoint("nothing", pinned=True)
    with pytest.raises(OptionInvalid, match="its id and run cannot be changed"):
        db.edit_checkpoint("c1", lambda one: dataclasses.replace(one, experiment_id="r2"))


def test_a_thousand_rows_are_one_transaction(db):
    rows = [Checkpoint(id=f"c{n:04}", experiment_id="r1", step=n, metrics={"acc": n / 1000}) for n in range(1000)]

    assert db.save_checkpoints(rows) == 1000
    assert db.save_checkpoints(rows[:600]) == 600
    assert db.best("r1", "acc", "max")[0].step == 999
    assert len(db.get_checkpoints([one.id for one in rows])) == 1000


def test_what_is_deleted_defends_no_flag_and_is_listed_only_among_the_deleted(db):
    """A row may carry a flag though it is deleted: one that was written down whole, or by an earlier version."""
    saved(db, "c1", step=1, loss=0.1, is_best_loss=True, state="deleted", deleted_at=1.0, checkpoint_type="manual")
    lower = {"loss": lambda old, new: new is old or new.loss < old.loss}

    won = db.record_saved(Checkpoint(id="c2", experiment_id="r1", step=2, loss=0.5), beats=lower)

    assert won == ("loss",)
    assert [one.id for one in db.get_checkpoints_by_experiment("r1", best_only=True)] == ["c2"]
    assert [one.id for one in db.get_checkpoints_by_experiment("r1", best_only=True, state="deleted")] == ["c1"]
    assert db.get_checkpoints_by_experiment("r1", "other", best_only=True) == []


def test_figures_of_a_run_add_up(db):
    saved(db, "c1", step=1, file_size=10, unique_bytes=4, loss=0.5)
    saved(db, "c2", step=2, file_size=20, loss=NAN, val_loss=0.25)
    saved(db, "c3", step=3, file_size=40, loss=0.1)
    db.delete_checkpoint("c3")

    figures = db.get_experiment_statistics("r1")

    assert (figures.checkpoints, figures.deleted_checkpoints) == (2, 1)
    assert (figures.total_bytes, figures.unique_bytes) == (30, 24)
    assert (figures.first_step, figures.last_step) == (1, 2)
    assert (figures.best_loss, figures.best_val_loss) == (0.5, 0.25)
    with pytest.raises(WrongReference, match="experiment 'nobody'"):
        db.get_experiment_statistics("nobody")


def test_no_checkpoint_outlives_its_run_unseen(db, database_url):
    """The foreign key is enforced on every pooled connection, not only on the first."""
    with EnhancedDatabaseConnection(database_url) as other, pytest.raises(RowRefused, match="refused the row"):
        other.save_checkpoint(Checkpoint(id="c9", experiment_id="gone"))
