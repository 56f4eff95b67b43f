"""A plan that was looked at, and removals that were cut off: what they stand on is looked at once more."""

from pathlib import Path

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.database import IntegrityRecord
from model_checkpoint.errors import OptionInvalid, PlanOutdated, WrongReference


def saved(manager, count):
    return [
        manager.save_checkpoint({"w": np.full(2, float(step))}, step=step, val_loss=float(step))
        for step in range(count)
    ]


def there(manager):
    return {info.id for info in mc.list_checkpoints(manager.root)}


def truncate(manager, id):
    (path,) = Path(manager.get_checkpoint(id).file_path).glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])


def find_damaged(manager, id):
    manager.connection.record_integrity(IntegrityRecord(checkpoint_id=id, outcome="damaged"))


def overwrite(manager, id):
    mc.save(manager.root, {"w": 1}, name=manager.get_checkpoint(id).name, overwrite=True)


@pytest.mark.parametrize(
    ("change", "which", "said"),
    [
        (lambda manager, id: manager.pin(id), 0, "was pinned or tagged since"),
        (lambda manager, id: mc.pin(manager.root, id=id), 0, "was pinned or tagged since"),
        (lambda manager, id: manager.tag(id, "paper"), 0, "was pinned or tagged since"),
        (lambda manager, id: mc.tag(manager.root, "paper", id=id), 0, "was pinned or tagged since"),
        (lambda manager, id: manager.delete_checkpoint(id), 3, "is gone, and it was to be kept"),
        (lambda manager, id: mc.delete(manager.root, id=id), 3, "is gone, and it was to be kept"),
        (truncate, 3, r"is damaged now \(1 of its 1 files"),
        (find_damaged, 3, r"is damaged now \(damaged\)"),
        (overwrite, 0, "is another checkpoint now"),
        (overwrite, 3, "is another checkpoint now"),
    ],
)
def test_a_plan_that_no_longer_holds_is_refused_by_name_and_nothing_goes(manager, change, which, said):
    """What was to be kept may be gone by now: the rest is then all there is."""
    ids = saved(manager, 4)
    plan = manager.plan(keep=[mc.last(1)])
    name = manager.get_checkpoint(ids[which]).name
    change(manager, ids[which])
    before = there(manager)

    with pytest.raises(PlanOutdated, match=rf"plan {plan.id} no longer holds: {name} {said}.*Nothing was removed"):
        manager.prune(plan=plan)
    assert there(manager) == before


@pytest.mark.usefixtures("database_url")
def test_a_plan_made_anew_stands_on_what_lies_in_the_root(manager):
    """The catalog has not heard of what went or broke there; the last that is whole stays all the same."""
    ids = saved(manager, 4)
    mc.delete(manager.root, id=ids[3])
    truncate(manager, ids[2])

    plan = manager.plan(keep=[mc.last(1)])
    manager.prune(plan=plan)

    assert {one.candidate.id for one in plan.kept} == {ids[1], ids[2]}
    assert there(manager) == {ids[1], ids[2]}


def test_a_plan_of_another_root_is_refused(make, tmp_path):
    here, elsewhere = make(), make(folder=f"{tmp_path}/elsewhere")
    saved(elsewhere, 2)

    with pytest.raises(PlanOutdated, match=r"is of .*/elsewhere\. Nothing was removed"):
        here.prune(plan=elsewhere.plan(keep=[mc.last(1)]))
    assert len(there(elsewhere)) == 2


@pytest.mark.usefixtures("database_url")
def test_a_slip_of_the_pen_prunes_nothing(manager):
    ids = saved(manager, 3)

    with pytest.raises(WrongReference, match=r"no checkpoint has a metric 'val_los'.*Did you mean 'val_loss'.*Nothing"):
        manager.prune(keep=[mc.last(1), mc.best("val_los")])
    with pytest.raises(OptionInvalid, match="give keep= or plan=, not both"):
        manager.prune(keep=[mc.last(1)], plan=manager.plan(keep=[mc.last(1)]))
    assert there(manager) == set(ids)


def test_what_a_hook_tags_while_a_plan_is_carried_out_stays(manager):
    ids = saved(manager, 3)

    def tag(context):
        mc.tag(manager.root, "paper", id=ids[1])

    manager.register_hook("tag", tag, events=["before_retention_policy"])
    manager.prune(keep=[mc.last(1)])

    assert there(manager) == {ids[1], ids[2]}


# --- removals that were cut off --------------------------------------------------------------------------------------


def cut_off(manager, id, *, action="retention"):
    """Leave what a kill right after the intent was written leaves."""
    return manager.connection.record_intent(id, action, details={"tags": []})


@pytest.mark.parametrize(
    "mark",
    [
        lambda manager, id: manager.pin(id),
        lambda manager, id: mc.pin(manager.root, id=id),
        lambda manager, id: manager.tag(id, "paper"),
    ],
)
def test_a_retention_that_was_cut_off_gives_up_what_was_marked_since(make, mark):
    manager = make()
    ids = saved(manager, 3)
    cut_off(manager, ids[0])
    cut_off(manager, ids[1])
    mark(manager, ids[0])

    last = make().save_checkpoint({"w": np.zeros(2)}, step=9)

    assert there(manager) == {ids[0], ids[2], last}
    assert [one.outcome for one in manager.connection.intents(ids[0])] == ["given up"]
    assert next((one.action, one.outcome) for one in manager.audit(ids[1]).items) == ("retention", "finished later")


@pytest.mark.usefixtures("database_url")
def test_a_retention_that_was_cut_off_never_takes_what_a_resume_would_start_from(make):
    manager = make()
    ids = saved(manager, 3)
    cut_off(manager, ids[1])
    mc.delete(manager.root, id=ids[2])
    truncate(manager, ids[0])

    make().delete_checkpoint(ids[0])

    assert there(manager) == {ids[1]}
    assert manager.connection.open_intents() == []


def test_what_somebody_asked_to_have_deleted_goes_though_it_was_pinned(make):
    manager = make()
    ids = saved(manager, 2)
    manager.pin(ids[0])
    cut_off(manager, ids[0], action="delete")

    last = make().save_checkpoint({"w": np.zeros(2)}, step=9)

    assert there(manager) == {ids[1], last}


@pytest.mark.usefixtures("database_url")
def test_a_deletion_is_one_entry_of_the_audit_trail_however_many_carry_it_out(make):
    manager = make()
    ids = saved(manager, 3)
    cut_off(manager, ids[0])
    cut_off(manager, ids[0])
    make().save_checkpoint({"w": np.zeros(2)}, step=9)
    cut_off(manager, ids[0])
    make().save_checkpoint({"w": np.zeros(2)}, step=10)

    assert [one.action for one in manager.audit(ids[0]).items] == ["retention", "save"]
    assert manager.connection.open_intents() == []
