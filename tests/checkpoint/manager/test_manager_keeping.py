"""Deleting, bringing back, pinning and retention: row and files together."""

import os

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.checkpoint import CheckpointUnknown
from model_checkpoint.checkpoint.catalog.reindexing import reindex
from model_checkpoint.checkpoint.keeping.kept_reasons import kept_reasons
from model_checkpoint.checkpoint.keeping.run_policies import policy_in_force
from model_checkpoint.database import Experiment
from model_checkpoint.errors import OptionInvalid, StepExists, WrongReference
from model_checkpoint.hooks import HookEvent, HookVetoed, SmartCheckpointRetentionHook, StrategyCatalog
from model_checkpoint.storage.local.store import LocalStore


def saved(manager, count, **options):
    return [
        manager.save_checkpoint({"w": np.full(2, float(step))}, step=step, val_loss=abs(step - 2.0), **options)
        for step in range(count)
    ]


def there(manager):
    return {info.id for info in mc.list_checkpoints(manager.root)}


def test_a_deleted_checkpoint_is_gone_row_and_files_and_comes_back_the_same_way(served):
    ids = saved(served, 3)

    served.delete_checkpoint(ids[1])

    assert there(served) == {row.id for row in served.list_checkpoints()} == {ids[0], ids[2]}
    with pytest.raises(CheckpointUnknown, match="was deleted"):
        served.load_checkpoint(ids[1])
    served.restore_checkpoint(ids[1])
    assert there(served) == {row.id for row in served.list_checkpoints()} == set(ids)
    assert served.load_checkpoint(ids[1])["model_state_dict"]["w"].tolist() == [1.0, 1.0]
    assert served.connection.open_intents() == []


def test_a_deleted_best_hands_its_flag_on_and_gets_it_back(served):
    ids = saved(served, 4)
    assert [row.id for row in served.list_checkpoints(best_only=True)] == [ids[2]]

    served.delete_checkpoint(ids[2])
    assert [row.id for row in served.list_checkpoints(best_only=True)] == [ids[3]]

    served.restore_checkpoint(ids[2])
    assert [row.id for row in served.list_checkpoints(best_only=True)] == [ids[2]]


@pytest.mark.usefixtures("database_url")
def test_a_best_that_goes_with_the_next_best_hands_its_flag_to_one_that_stays(manager):
    ids = [manager.save_checkpoint({"w": np.ones(2)}, step=step, loss=float(step)) for step in range(4)]

    manager.prune(keep=[mc.last(1)])

    assert [(row.id, row.is_best_loss) for row in manager.list_checkpoints()] == [(ids[3], True)]


def test_what_comes_back_is_what_was_deleted_and_nothing_else_of_its_name(manager):
    """Names of a plain root tell the step, and a step may be saved again."""
    infos = []
    for value in (1.0, 2.0):
        mc.save(manager.root, {"w": np.full(2, value)}, step=7)
        reindex(manager.root, manager.connection)
        infos.append(mc.list_checkpoints(manager.root)[0])
        manager.delete_checkpoint(infos[-1].id)

    manager.restore_checkpoint(infos[0].id)

    assert there(manager) == {infos[0].id}
    with pytest.raises(StepExists, match="a checkpoint of that name exists"):
        manager.restore_checkpoint(infos[1].id)
    assert manager.connection.get_checkpoint(infos[1].id).state == "deleted"
    assert manager.connection.open_intents() == []


def test_what_is_no_longer_in_the_trash_does_not_come_back_and_is_not_tried_again(make):
    manager = make(grace=0)
    first, second = saved(manager, 2)
    manager.delete_checkpoint(first)
    mc.prune(manager.root, keep=[mc.last(9)], grace=0)

    with pytest.raises(WrongReference, match="is not in the trash; its grace may be over"):
        manager.restore_checkpoint(first)

    assert manager.connection.open_intents() == []
    assert [row.id for row in manager.list_checkpoints()] == [second]


def test_a_hook_may_prevent_a_deletion(manager):
    (id,) = saved(manager, 1)
    manager.register_hook("keep", lambda context: False, events=[HookEvent.BEFORE_CHECKPOINT_DELETE])

    with pytest.raises(HookVetoed, match="keep"):
        manager.delete_checkpoint(id)
    assert there(manager) == {id}


@pytest.mark.usefixtures("database_url")
def test_the_newest_and_the_best_are_kept_and_files_and_rows_go_together(make):
    manager = make(max_checkpoints=3)

    ids = saved(manager, 8)

    kept = {ids[2], *ids[5:]}
    assert there(manager) == {row.id for row in manager.list_checkpoints()} == kept
    assert manager.load_checkpoint(checkpoint_type="best_val_loss")["_checkpoint_metadata"]["id"] == ids[2]


def test_save_best_and_save_last_mean_what_they_say(make, tmp_path):
    only_last = make(folder=f"{tmp_path}/a", max_checkpoints=2, save_best=False)
    only_best = make(folder=f"{tmp_path}/b", max_checkpoints=5, save_last=False)

    first, second = saved(only_last, 5), saved(only_best, 5)

    assert there(only_last) == set(first[3:])
    assert there(only_best) == {second[2], second[4]}


@pytest.mark.usefixtures("database_url")
def test_pinned_checkpoints_stay_whoever_pinned_them(make):
    manager = make(max_checkpoints=1, save_best=False)
    first = manager.save_checkpoint({"w": np.zeros(2)}, step=0)
    manager.pin(first)
    second = manager.save_checkpoint({"w": np.zeros(2)}, step=1)
    mc.pin(manager.root, id=second)

    ids = [manager.save_checkpoint({"w": np.zeros(2)}, step=step) for step in (2, 3)]
    assert there(manager) == {first, second, ids[-1]}

    manager.unpin(first)
    last = manager.save_checkpoint({"w": np.zeros(2)}, step=4)
    assert there(manager) == {second, last}


@pytest.mark.usefixtures("database_url")
def test_a_plan_tells_why_and_what_is_carried_out_is_what_was_looked_at(manager):
    ids = saved(manager, 5)

    plan = manager.plan(keep=[mc.last(1), mc.best("val_loss")])
    assert there(manager) == set(ids)
    manager.save_checkpoint({"w": np.zeros(2)}, step=9)
    done = manager.prune(plan=plan)

    reasons = {one.candidate.id: " ".join(one.reasons) for one in plan.decisions}
    assert "number 1" in reasons[ids[2]]
    assert set(done.done) == {manager.connection.get_checkpoint(id).name for id in (ids[0], ids[1], ids[3])}
    assert {ids[2], ids[4]} < there(manager)
    actions = [(one.action, one.details["plan"]) for one in manager.audit(action="retention").items]
    assert actions == [("retention", plan.id)] * 3


@pytest.mark.usefixtures("database_url")
def test_retention_never_touches_another_run_in_the_same_root(make, run):
    run.connection.save_experiment(Experiment(id="other", name="other"))
    manager = make(max_checkpoints=1, save_best=False)
    theirs = [manager.save_checkpoint({"w": np.zeros(2)}, step=step, experiment_id="other") for step in range(1)]

    mine = [manager.save_checkpoint({"w": np.zeros(2)}, step=step) for step in range(3)]

    assert there(manager) == {*theirs, mine[-1]}


def test_keepers_of_ones_own_replace_the_usual_ones(make):
    manager = make(keep=[mc.every(2)])

    ids = saved(manager, 6)

    assert there(manager) == {ids[0], ids[2], ids[4], ids[5]}


def test_a_retention_that_fails_does_not_fail_the_save(make):
    manager = make(max_checkpoints=1, save_best=False)
    manager.register_hook("no", lambda context: False, events=[HookEvent.BEFORE_RETENTION_POLICY])

    ids = saved(manager, 3)

    assert there(manager) == set(ids)
    assert manager.get_performance_statistics()["troubles"]["retention"] == 3


def test_the_manager_is_what_strategy_hooks_need(manager):
    assert isinstance(manager, StrategyCatalog)
    manager.register_hook(SmartCheckpointRetentionHook(catalog=manager, max_checkpoints=2))

    saved(manager, 5)

    assert len(manager.checkpoints()) == 2
    assert there(manager) == {row.id for row in manager.checkpoints()}


@pytest.mark.usefixtures("database_url")
def test_every_deed_is_one_entry_of_the_audit_trail(manager):
    ids = saved(manager, 2)
    manager.load_checkpoint(ids[0])
    manager.pin(ids[0])
    manager.unpin(ids[0])
    manager.tag(ids[0], "paper")
    manager.delete_checkpoint(ids[0])
    manager.restore_checkpoint(ids[0])

    trail = [one.action for one in manager.audit(ids[0]).items][::-1]
    assert trail == ["save", "load", "pin", "unpin", "tag", "delete", "restore"]
    first = manager.audit(ids[0]).items[-1]
    assert (first.outcome, f":{os.getpid()}" in first.actor, first.details["step"]) == ("ok", True, 0)
    assert list(manager.get_checkpoint(ids[0]).tags) == ["paper"]
    assert mc.list_checkpoints(LocalStore(manager.root))[1].tags == ("paper",)


def test_what_was_dropped_gives_its_room_back_when_its_grace_is_over(make, tmp_path):
    kept, gone = make(folder=f"{tmp_path}/kept"), make(folder=f"{tmp_path}/gone", grace=0)
    for manager in (kept, gone):
        for step in range(4):
            manager.save_checkpoint({"w": np.ones(3)}, step=step)
        manager.prune(keep=[mc.last(1)])

    assert len(list((tmp_path / "kept" / ".trash").iterdir())) == 3
    assert list((tmp_path / "gone" / ".trash").iterdir()) == []


def test_what_others_deleted_in_the_same_root_keeps_its_day(make, tmp_path):
    """``mc.delete`` promises 24 hours, whatever grace the manager of a run was given."""
    manager = make(grace=0, max_checkpoints=1)
    mc.save(manager.root, {"a": 1}, step=77)
    mc.delete(manager.root, step=77)

    saved(manager, 4)

    assert [one.name for one in LocalStore(manager.root).trash()] == ["step-00000077"]
    assert mc.undelete(manager.root, step=77).step == 77


@pytest.mark.usefixtures("database_url")
def test_what_an_earlier_manager_dropped_is_swept_by_the_next(make, tmp_path):
    saved(make(grace=3600.0, max_checkpoints=1), 3)
    root = f"{tmp_path}/root"
    assert len(LocalStore(root).trash()) == 2

    saved(make(grace=0, max_checkpoints=1), 4)

    assert LocalStore(root).trash() == []


@pytest.mark.parametrize("grace", [-1, True, "an hour", float("nan")])
def test_a_grace_that_is_no_time_is_refused(make, grace):
    with pytest.raises(OptionInvalid, match=r"grace must be seconds, 0 or more"):
        make(grace=grace)


@pytest.mark.usefixtures("database_url")
def test_the_catalog_knows_by_which_keepers_a_run_is_pruned_and_can_say_why_each_stays(make, run, tmp_path):
    saved(make(max_checkpoints=3), 5)
    manager = make(keep=[mc.last(1), mc.best("val_loss", 2), mc.younger_than("1.5s"), mc.budget(10**9)])
    saved(manager, 3, experiment_id=run.experiment_id)
    connection, root = run.connection, manager.root

    told = [entry.details["keep"] for entry in manager.audit(run.experiment_id, action="policy").items][::-1]
    rows = connection.crowd(run.experiment_id, root)
    why = kept_reasons(connection, rows)

    assert told == [
        ["last:3", "best:min:val_loss:1"],
        ["last:1", "best:val_loss:2", "younger_than:1.500000s", "budget:1000000000B"],
    ]
    newest = max(rows, key=lambda row: (row.step, row.created_at))
    assert [(one.rule, one.why) for one in why[newest.id] if one.rule in ("newest", "last 1")] == [
        ("newest", "the newest of its run"),
        ("last 1", "number 1"),
    ]
    saved(make(), 1)  # one that keeps all
    assert policy_in_force(connection, run.experiment_id, root) == ()
    told_without = {one.rule for found in kept_reasons(connection, rows).values() for one in found}
    assert told_without <= {"newest", "best(val_loss)"}  # facts alone
