"""What is best and what is kept is said once, refused if it makes no sense, and means the same after a restart."""

import logging

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.checkpoint import CheckpointUnknown
from model_checkpoint.database.errors import DatabaseUnreachable
from model_checkpoint.errors import ExpressionInvalid, OptionInvalid


def saved(manager, measured, **options):
    return [
        manager.save_checkpoint({"w": np.full(2, float(step))}, step=step, **options, **one)
        for step, one in enumerate(measured)
    ]


def scores(*rows):
    return [{"metrics": dict(zip(("acc", "lat"), row, strict=True))} for row in rows]


def flagged(manager):
    return [row.id for row in manager.list_checkpoints() if row.is_best_metric]


# --- what is best ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["acc -", "", "  ", 3, "acc, min:", "f1 -- (", "max:min:acc", "acc-"])
def test_a_criterion_that_is_none_is_refused_before_anything_is_saved(make, wrong):
    with pytest.raises((ExpressionInvalid, OptionInvalid), match="best_metric"):
        make(best_metric=wrong)


@pytest.mark.parametrize("name", ["val/loss", "acc@5", "top-5.acc", "max:hits@10"])
def test_a_metric_with_a_name_of_its_own_may_be_the_criterion_also_where_it_was_not_measured(make, name):
    plain = name.removeprefix("max:")
    manager = make(best_metric=name)

    ids = saved(manager, [{}, {"metrics": {plain: 0.5, "other": 1.0}}, {"metrics": {"other": 2.0}}])

    assert flagged(manager) == [ids[1]]
    assert manager.load_checkpoint(checkpoint_type="best_metric")["step"] == 1


def test_whatever_fails_behind_the_commit_leaves_neither_files_nor_row(make, monkeypatch):
    """A folder that no row knows of takes room for ever."""
    manager = make()

    def fail(*row, **options):
        raise ArithmeticError("a slip of the catalog")

    monkeypatch.setattr(type(manager.connection), "record_saved", fail)
    with pytest.raises(ArithmeticError, match="a slip"):
        manager.save_checkpoint({"w": np.ones(2)}, step=1)

    assert mc.list_checkpoints(manager.root) == []
    assert manager.list_checkpoints() == []


def test_several_criteria_decide_one_after_the_other(make):
    manager = make(best_metric="acc, min:lat")

    ids = saved(manager, scores((0.9, 3.0), (0.9, 1.0), (0.9, 2.0), (0.8, 0.1), (float("nan"), 0.0)))

    assert flagged(manager) == [ids[1]]
    assert manager.load_checkpoint(checkpoint_type="best_metric")["step"] == 1
    assert manager.load_checkpoint(checkpoint_type="max:acc, lat")["step"] == 0
    assert manager.load_checkpoint(checkpoint_type="max:acc, min:acc")["step"] == 2  # among equals the newest
    manager.delete_checkpoint(ids[1])
    assert flagged(manager) == [ids[2]]


def test_several_criteria_are_answered_by_the_manifests_too(make):
    manager = make(best_metric="acc, min:lat")
    saved(manager, scores((0.9, 3.0), (0.9, 1.0), (0.8, 0.1)))
    manager._services.catalog.note_away(DatabaseUnreachable("gone for a moment"))

    assert manager.load_checkpoint(checkpoint_type="best_metric")["step"] == 1


def test_the_best_by_several_criteria_is_kept(make):
    manager = make(best_metric="acc, min:lat", max_checkpoints=1)

    saved(manager, scores((0.9, 3.0), (0.9, 1.0), (0.8, 0.1), (0.7, 0.1)))

    assert [row.step for row in manager.list_checkpoints()] == [3, 1]


@pytest.mark.usefixtures("database_url")
def test_what_is_saved_without_a_claim_to_be_the_best_never_is(make):
    manager = make(max_checkpoints=1)
    first = manager.save_checkpoint({"w": np.ones(2)}, step=1, loss=0.5)
    aside = manager.save_checkpoint({"w": np.ones(2)}, step=2, loss=0.1, update_best=False)

    assert manager.load_checkpoint(checkpoint_type="best_loss")["step"] == 1
    assert {row.id for row in manager.list_checkpoints()} == {first, aside}  # the best is not dropped for it
    manager.delete_checkpoint(first)
    assert not any(row.is_best_loss for row in manager.list_checkpoints())
    with pytest.raises(CheckpointUnknown, match="best_loss"):
        manager.load_checkpoint(checkpoint_type="best_loss")


def test_what_is_saved_without_a_claim_is_not_the_best_of_the_plain_root_either(make):
    """The manifest says so, whoever reads it."""
    manager = make()
    aside = manager.save_checkpoint({"w": np.zeros(2)}, step=1, loss=0.1, update_best=False)
    best = manager.save_checkpoint({"w": np.ones(2)}, step=2, loss=0.5)
    newest = manager.save_checkpoint({"w": np.zeros(2)}, step=3, loss=0.9)

    plan = mc.prune(manager.root, keep=[mc.best("loss")], dry_run=True)

    assert mc.load(manager.root, best="loss", parts="model")["model"]["w"].tolist() == [1, 1]
    assert [one.candidate.id for one in plan.kept] == [newest, best]
    assert [(one.candidate.id, one.reasons) for one in plan.dropped] == [
        (aside, ("best 1 by loss: was saved with update_best=False",))
    ]


@pytest.mark.usefixtures("database_url")
def test_another_criterion_after_a_restart_gives_the_flags_anew(make):
    ids = saved(make(best_metric="acc"), scores((0.9, 3.0), (0.8, 1.0)))
    again = make(best_metric="min:lat")

    ids.append(again.save_checkpoint({"w": np.ones(2)}, step=2, metrics={"acc": 0.7, "lat": 2.0}))

    assert flagged(again) == [ids[1]]


def test_a_manager_that_is_told_no_criterion_goes_on_with_the_last_one(make):
    ids = saved(make(best_metric="min:lat"), scores((0.9, 3.0), (0.8, 1.0)))
    again = make()

    assert again.load_checkpoint(checkpoint_type="best_metric")["step"] == 1
    again.save_checkpoint({"w": np.ones(2)}, step=2, metrics={"acc": 0.95, "lat": 2.0})
    assert flagged(again) == [ids[1]]
    assert make().load_checkpoint(checkpoint_type="best_metric")["step"] == 1


# --- what is kept ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [mc.last(1), "last:1", ["last:1"], (mc.last(1),)])
def test_one_keeper_or_its_word_keeps_what_it_says(make, keep):
    manager = make(keep=keep)

    saved(manager, [{}] * 3)

    assert [row.step for row in manager.list_checkpoints()] == [2]
    assert [one.name for one in manager.plan(keep=keep).dropped] == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [([], "got none"), ("lst:3", "no keeper 'lst'"), (3, "got 3"), ([3], "got 3"), (["best"], "cannot be read")],
)
def test_a_rule_that_keeps_nothing_or_is_none_is_refused(make, wrong, said):
    with pytest.raises(OptionInvalid, match=said):
        make(keep=wrong)


def test_a_keeper_that_can_rank_nothing_is_told_once_and_counted(make, caplog):
    """All are kept then, and a slip of the pen would fill the disk without a word."""
    manager = make(keep=[mc.last(1), mc.best("val_los")])

    with caplog.at_level(logging.WARNING, "model_checkpoint.manager"):
        saved(manager, [{"val_loss": 1.0}, {"val_loss": 2.0}, {"val_loss": 3.0}])

    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1
    assert "val_los" in told[0]
    assert "all are kept" in told[0]
    assert manager.get_performance_statistics()["troubles"] == {"ranking of what to keep": 3}
    assert len(manager.list_checkpoints()) == 3
