"""Pruning a plain root: what is done is what was told, it can be undone, and nothing that matters goes."""

import pytest
from tests.checkpoint.retention.retention_ground import fill, names
from tests.ground.stored.stored_files import steps

import model_checkpoint as mc
from model_checkpoint.checkpoint.retention.candidates import read_candidates
from model_checkpoint.engine.root.intents import IntendedDeletion, Intent, open_intent, open_intents
from model_checkpoint.engine.root.shared_files import stored_bytes
from model_checkpoint.errors import (
    DiskFull,
    ExpressionInvalid,
    OptionInvalid,
    PlanOutdated,
    StorageFailure,
    WrongReference,
)
from model_checkpoint.storage import LocalStore, open_store
from model_checkpoint.storage.contract.sidecars import SidecarKeeper
from model_checkpoint.testing import FaultyCalls


@pytest.fixture(params=["folder", "memory"])
def root(request, tmp_path):
    root = tmp_path / "runs" if request.param == "folder" else f"memory://prune/{tmp_path.name}"
    fill(root, range(1, 9), metric=lambda step: abs(step - 3))
    return root


KEEP = [mc.last(2), mc.best("val_loss", 2), mc.every(5)]


def test_a_dry_run_tells_and_removes_nothing(root):
    plan = mc.prune(root, keep=KEEP, dry_run=True)

    assert [one.candidate.step for one in plan.kept] == [8, 7, 5, 4, 3, 1]
    assert names(plan.dropped) == ["step-00000006", "step-00000002"]
    assert (plan.done, steps(root)) == ((), list(range(1, 9)))
    assert plan.freed_bytes > 0


def test_what_no_keeper_claims_goes_to_the_trash_and_comes_back_from_there(root):
    plan = mc.prune(root, keep=KEEP)

    assert plan.done == ("step-00000002", "step-00000006")
    assert steps(root) == [1, 3, 4, 5, 7, 8]
    assert mc.undelete(root, step=6).step == 6
    assert mc.undelete(root, step=2).step == 2
    assert mc.load(root, step=6)["step"] == 6
    assert mc.prune(root, keep=[mc.last(99)]).done == ()


def test_without_grace_the_bytes_are_given_back_at_once(root):
    before = stored_bytes(root)

    plan = mc.prune(root, keep=KEEP, grace=0)

    assert plan.freed_bytes == before - stored_bytes(root) > 0
    assert plan.swept_bytes >= plan.freed_bytes
    assert open_store(root).trash() == []


def test_a_plan_is_carried_out_as_it_was_told_though_new_ones_came(root):
    plan = mc.prune(root, keep=[mc.last(2)], dry_run=True)
    fill(root, [9, 10])

    assert set(mc.prune(root, plan=plan).done) == set(names(plan.dropped))
    assert steps(root) == [7, 8, 9, 10]


def test_a_plan_is_carried_out_by_its_id_only_if_it_is_still_the_same(root):
    told = mc.prune(root, keep=[mc.last(2)], dry_run=True)
    fill(root, [9])

    with pytest.raises(PlanOutdated, match=rf"the plan is \w+ now, not {told.id}.*now would go: .*step-00000007"):
        mc.prune(root, keep=[mc.last(2)], plan=told.id)
    assert steps(root) == list(range(1, 10))
    mc.delete(root, step=9)
    assert len(mc.prune(root, keep=[mc.last(2)], plan=told.id).done) == 6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda root: mc.pin(root, step=1), r"step-00000001 was pinned or tagged since"),
        (lambda root: mc.tag(root, "paper", step=1), r"step-00000001 was pinned or tagged since"),
        (lambda root: mc.delete(root, step=7), r"step-00000007 is gone, and it was to be kept"),
        (lambda root: mc.save(root, {"w": 1}, step=1, overwrite=True), r"step-00000001 is another checkpoint now"),
        (lambda root: mc.save(root, {"w": 1}, step=7, overwrite=True), r"step-00000007 is another checkpoint now"),
    ],
)
def test_a_plan_that_no_longer_holds_is_refused_by_name(root, change, said):
    plan = mc.prune(root, keep=[mc.last(2)], dry_run=True)
    change(root)
    before = steps(root)

    with pytest.raises(PlanOutdated, match=rf"plan {plan.id} no longer holds: {said}.*Nothing was removed"):
        mc.prune(root, plan=plan)
    assert steps(root) == before


def test_what_a_plan_drops_and_is_gone_already_is_no_error(root):
    plan = mc.prune(root, keep=[mc.last(2)], dry_run=True)
    mc.delete(root, step=3)

    assert "step-00000003" not in mc.prune(root, plan=plan).done
    assert steps(root) == [7, 8]
    assert mc.prune(root, plan=plan).done == ()


def test_a_plan_of_another_root_is_refused(root, tmp_path):
    fill(f"memory://other/{tmp_path.name}", [1, 2])
    plan = mc.prune(f"memory://other/{tmp_path.name}", keep=[mc.last(1)], dry_run=True)

    with pytest.raises(PlanOutdated, match=r"is of memory://other"):
        mc.prune(root, plan=plan)


def test_pins_and_tags_of_a_plain_root_are_respected(root):
    mc.pin(root, step=1)
    mc.tag(root, "paper", step=2)

    assert mc.prune(root, keep=[mc.last(1), mc.tagged("paper")]).kept[1].reasons == ("tagged paper",)
    assert steps(root) == [1, 2, 8]


def test_a_misspelt_metric_removes_nothing(root):
    with pytest.raises(WrongReference, match=r"no checkpoint has a metric 'val_los'.*Did you mean 'val_loss'.*Nothing"):
        mc.prune(root, keep=[mc.last(1), mc.best("val_los")])
    with pytest.raises(WrongReference, match=r"no checkpoint has a metric 'speed'"):
        mc.prune(root, keep=[mc.pareto("val_loss", "speed")])
    with pytest.raises(ExpressionInvalid, match=r"expected a metric"):
        mc.prune(root, keep=[mc.best("val_loss +")])
    assert steps(root) == list(range(1, 9))


def test_what_is_asked_for_wrongly_is_refused(root):
    plan = mc.prune(root, keep=[mc.last(1)], dry_run=True)

    for wrong, said in [
        ({}, r"say what to keep"),
        ({"keep": []}, r"say what to keep"),
        ({"keep": [mc.last(1)], "plan": plan}, r"give keep= or plan=, not both"),
        ({"keep": [mc.last(1)], "dry_run": "yes"}, r"dry_run must be True"),
        ({"keep": [mc.last(1)], "damaged": "burn"}, r"damaged must be 'keep' or 'drop'"),
        ({"keep": [mc.last(1)], "grace": "soon"}, r"'soon' is no amount"),
    ]:
        with pytest.raises(OptionInvalid, match=said):
            mc.prune(root, **wrong)
    assert steps(root) == list(range(1, 9))


def test_load_and_a_reference_take_expressions_too(root):
    assert mc.load(root, best="min:val_loss / 2 + 1")["step"] == 3
    assert mc.load(f"{root}@best:val_loss")["step"] == 3
    assert mc.load(f"{root}@best:max:val_loss/2")["step"] == 8
    assert mc.load(f"{root}@best:best_val_loss")["step"] == 3
    with pytest.raises(WrongReference, match=r"no checkpoint has a metric 'f1'"):
        mc.load(root, best="0.5*f1 + max(f1, 2)")


# --- a plan that was cut off -----------------------------------------------------------------------------------------


def cut_off(root, *doomed):
    """Leave what a kill in the middle of a prune leaves."""
    ids = {info.step: info.id for info in mc.list_checkpoints(root)}
    marks = tuple(IntendedDeletion(f"step-{step:08d}", ids[step]) for step in doomed)
    assert open_intent(open_store(root), Intent(plan="abc", deletions=marks))


def test_a_plan_that_was_cut_off_is_finished_when_asked(root):
    cut_off(root, 1, 2, 4)
    mc.delete(root, step=1)

    plan = mc.prune(root)

    assert plan.done == ("step-00000002", "step-00000004")
    assert plan.dropped[0].reasons == ("in the plan that was cut off",)
    assert steps(root) == [3, 5, 6, 7, 8]
    with pytest.raises(OptionInvalid, match=r"there is none to finish"):
        mc.prune(root)


def test_a_plan_that_was_cut_off_never_takes_what_was_pinned_or_is_the_newest_now(root):
    cut_off(root, 7, 8)
    mc.pin(root, step=7)

    assert mc.prune(root).done == ()
    assert steps(root) == list(range(1, 9))


def test_a_new_decision_gives_up_a_plan_that_was_cut_off_and_says_so(root):
    cut_off(root, 7, 6)

    told = mc.prune(root, keep=[mc.last(3)], dry_run=True)
    assert told.warnings[0].startswith("plan abc (step-00000007, step-00000006) was cut off; prune(root) without keep=")
    mc.prune(root, keep=[mc.last(3)])

    assert steps(root) == [6, 7, 8]
    assert open_intents(open_store(root)) == []


def test_whoever_takes_something_back_gives_up_the_rest_of_a_plan_that_was_cut_off(root):
    cut_off(root, 1, 2)
    mc.delete(root, step=1)

    mc.undelete(root, step=1)

    assert open_intents(open_store(root)) == []
    assert steps(root) == list(range(1, 9))


def test_an_intent_that_is_not_ours_deletes_nothing(folder):
    cut_off(folder, 1, 2)
    (path,) = (folder / ".sidecars").iterdir()
    path.write_bytes(path.read_bytes().replace(b"00000002", b"00000005"))
    (folder / ".sidecars/prune.other").write_bytes(b"{}")

    with pytest.raises(OptionInvalid, match=r"there is none to finish"):
        mc.prune(folder)
    assert steps(folder) == list(range(1, 7))


def test_where_the_intent_cannot_be_written_room_is_freed_all_the_same(folder):
    class Full(LocalStore):
        """A disk that takes no more."""

        def write_sidecar(self, key, data):
            raise DiskFull(f"{self.url}: full", self.url)

    assert isinstance(Full(folder), SidecarKeeper)
    assert len(mc.prune(Full(folder), keep=[mc.last(1)]).done) == 5


def test_a_trash_that_cannot_be_cleared_is_told(folder):
    class Stuck(LocalStore):
        def sweep(self, graces, *, dry_run=False):
            raise StorageFailure("busy")

    plan = mc.prune(Stuck(folder), keep=[mc.last(5)])

    assert plan.done == ("step-00000001",)
    assert plan.warnings == ("the trash could not be cleared: busy",)


def test_candidates_are_read_from_heads_and_one_look_at_each_folder(folder):
    """Their number of calls grows by the same amount for each checkpoint, whatever is in it."""

    def calls(count):
        recorder = FaultyCalls()
        assert len(read_candidates(LocalStore(folder, calls=recorder))) == count
        assert not any(call.name in ("open",) and call.path.endswith("safetensors") for call in recorder.trace)
        return len(recorder.trace)

    six = calls(6)
    fill(folder, range(7, 13))
    twelve = calls(12)
    fill(folder, range(13, 19))
    assert calls(18) - twelve == twelve - six
