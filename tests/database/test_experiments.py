"""Runs are stored as they are, changed by one at a time, listed by page, and their silence can be told."""

import dataclasses
import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, RowRefused
from model_checkpoint.errors import OptionInvalid, WrongReference

ODD = {
    "lr": float("inf"),
    "nan": float("nan"),
    "big": 2**80,
    "small": -(2**63),
    "nested": {"a": [1, 2.5, None, True, "é\U0001f600"], "$float": "not a tag", "$dict": {}},
    "looks like a tag": {"$float": "1.0"},
}


def test_a_run_comes_back_as_it_was(db):
    run = Experiment(
        id="r2",
        name="sweep 'x' \"y\" % é",
        project_name="p",
        tags=["a", "b"],
        config=ODD,
        step=2**62,
        notes="n" * 100_000,
    )

    db.save_experiment(run)

    there = db.get_experiment("r2")
    assert math.isnan(there.config["nan"])
    known = {**ODD, "nan": 0}
    assert dataclasses.replace(there, config={**there.config, "nan": 0}) == dataclasses.replace(run, config=known)
    assert type(there.config["nested"]["a"][1]) is float


def test_names_that_differ_only_in_case_or_blanks_are_different(db):
    """MySQL would take them for one unless told otherwise."""
    for name in ("R", "r", "r ", "ré", "re"):
        db.save_experiment(Experiment(id=name, name=name))

    assert [db.get_experiment(name).name for name in ("R", "r", "r ", "ré", "re")] == ["R", "r", "r ", "ré", "re"]
    assert db.get_experiment("RÉ") is None


def test_saving_again_replaces(db):
    db.save_experiment(Experiment(id="r1", name="renamed", status="failed"))

    assert (db.get_experiment("r1").name, db.get_experiment("r1").status) == ("renamed", "failed")
    assert len(db.list_experiments().items) == 1


def test_changes_made_at_the_same_time_all_count(db):
    def tag(number):
        return db.edit_experiment("r1", lambda run: dataclasses.replace(run, tags=[*run.tags, str(number)]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(tag, range(24)))

    assert sorted(map(int, db.get_experiment("r1").tags)) == list(range(24))


def test_what_cannot_be_changed_is_refused(db):
    with pytest.raises(OptionInvalid, match=r"no field 'colour'; there are .*status"):
        db.update_experiment("r1", colour="red")
    with pytest.raises(OptionInvalid, match="its id cannot be changed"):
        db.edit_experiment("r1", lambda run: dataclasses.replace(run, id="other"))
    with pytest.raises(WrongReference, match="experiment 'nobody' is not in the catalog"):
        db.update_experiment("nobody", status="failed")


def test_what_a_database_would_cut_or_change_is_refused_on_all_of_them(db):
    for fields, message in [
        ({"config": {"lr": object()}}, r"config\.lr: the catalog holds plain data .* got object"),
        ({"config": {1: 2}}, "config: the catalog holds plain data .* got dict"),
        ({"name": "x" * 251}, "experiment name: at most 250 characters, got 251"),
        ({"notes": "a\0b"}, "notes: .* holds a character databases do not keep"),
        ({"name": "\ud800"}, "experiment name: .* holds a character databases do not keep"),
        ({"step": 2**63}, "step: 9223372036854775808 does not fit 64 bits"),
        ({"step": 1.5}, "step: must be a whole number, got 1.5"),
        ({"name": 7}, "experiment name: must be text, got int"),
    ]:
        with pytest.raises(RowRefused, match=message):
            db.update_experiment("r1", **fields)

    assert db.get_experiment("r1").name == "baseline"


def test_pages_hold_every_run_once_whatever_is_added_meanwhile(db):
    for number in range(25):
        db.save_experiment(Experiment(id=f"x{number:02}", name="x", project_name="p", start_time=1000.0 + number // 3))
    first = db.list_experiments(project_name="p", limit=10)
    db.save_experiment(Experiment(id="late", name="x", project_name="p", start_time=2000.0))
    second = db.list_experiments(project_name="p", limit=10, after=first.next)
    third = db.list_experiments(project_name="p", limit=10, after=second.next)

    ids = [run.id for page in (first, second, third) for run in page.items]
    assert ids == sorted((f"x{number:02}" for number in range(25)), reverse=True)
    assert third.next == ""
    assert [run.id for run in db.list_experiments(status="running", limit=1).items] == ["late"]


@pytest.mark.parametrize("cursor", ["x", "W10", "WzFd", "!!!", "eyJhIjoxfQ"])
def test_a_cursor_of_something_else_is_refused(lite, cursor):
    with pytest.raises(OptionInvalid, match="is no cursor of this list"):
        lite.list_experiments(after=cursor)


def test_the_limit_of_a_page_is_checked(lite):
    with pytest.raises(OptionInvalid, match="limit: must be from 1 to 10000, got 0"):
        lite.list_experiments(limit=0)


def test_a_run_that_lives_and_one_that_hangs_are_told_apart(db):
    """A heartbeat moves last_seen; only a new step moves last_step_at."""
    before = db.now()
    db.heartbeat("r1", step=5)
    first = db.get_experiment("r1")
    time.sleep(0.05)
    db.heartbeat("r1", step=5)
    hung = db.get_experiment("r1")
    db.heartbeat("r1")
    db.heartbeat("r1", step=6)
    moved = db.get_experiment("r1")

    assert before - 0.01 <= first.last_seen <= db.now()
    assert hung.last_seen > first.last_seen
    assert hung.last_step_at == first.last_step_at
    assert moved.last_step_at > hung.last_step_at
    assert (hung.step, moved.step) == (5, 6)


def test_a_run_nobody_heard_of_has_no_last_seen(db):
    assert db.get_experiment("r1").last_seen is None
    with pytest.raises(WrongReference, match="experiment 'nobody' is not in the catalog"):
        db.heartbeat("nobody")


def test_another_connection_sees_what_was_committed(db, database_url):
    with EnhancedDatabaseConnection(database_url) as other:
        other.update_experiment("r1", status="completed", end_time=200.0)

    assert db.get_experiment("r1").status == "completed"
