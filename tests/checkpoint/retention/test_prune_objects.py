"""Retention on an object store: marks, plans, pruning, and what a kill between two requests leaves."""

import pytest
from tests.checkpoint.retention.retention_ground import fill
from tests.ground.stored.stored_files import steps

import model_checkpoint as mc
from model_checkpoint.checkpoint.retention.candidates import read_candidates
from model_checkpoint.engine.root.intents import open_intents
from model_checkpoint.engine.root.marks import read_marks
from model_checkpoint.errors import StorageFailure
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.objects.requests.bucket import Bucket
from model_checkpoint.testing.blobs import AT_ONCE

pytestmark = pytest.mark.s3

KEEP = [mc.last(2), mc.best("val_loss")]


@pytest.fixture
def store(moto, tmp_path):
    store = ObjectStore(f"s3://bucket/retention/{tmp_path.name}", store=moto.client("bucket"))
    fill(store, range(1, 8), metric=lambda step: abs(step - 3))
    return store


def test_marks_plans_and_pruning_work_as_on_a_disk(store):
    mc.pin(store, step=1)
    mc.tag(store, "paper", step=2)
    mc.note(store, "a remark", step=2)

    plan = mc.prune(store, keep=[*KEEP, mc.tagged("paper")], dry_run=True)
    assert [one.candidate.step for one in plan.kept] == [7, 6, 3, 2, 1]
    assert mc.prune(store, plan=plan).done == ("step-00000004", "step-00000005")
    assert steps(store) == [1, 2, 3, 6, 7]
    assert mc.undelete(store, step=5).step == 5
    assert (mc.list_checkpoints(store)[4].note, mc.list_checkpoints(store)[4].tags) == ("a remark", ("paper",))


def test_bytes_are_those_of_the_objects(store):
    found = {one.name: one.nbytes for one in read_candidates(store)}

    assert found == {name: sum(store.files(name).values()) for name in store.names()}


def test_marks_follow_a_deletion_and_go_when_it_is_final(store):
    mc.pin(store, step=1)
    mc.delete(store, step=1)
    mc.undelete(store, step=1)
    assert {info.step: info.pinned for info in mc.list_checkpoints(store)}[1]

    mc.delete(store, step=1)
    mc.collect_garbage(store, graces=AT_ONCE)
    assert read_marks(store) == {}


class Dead(Exception):
    """The process ended here."""


class Life:
    """So many requests, and not one more, until it is given back."""

    def __init__(self, monkeypatch):
        self.left, self.call = None, Bucket._call
        monkeypatch.setattr(Bucket, "_call", lambda *request: self.spend(*request))

    def spend(self, *request):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Dead
        return self.call(*request)


@pytest.mark.slow
def test_a_death_between_two_requests_loses_nothing_and_can_be_finished(store, monkeypatch):
    life, unfinished = Life(monkeypatch), 0
    for requests in range(1, 1000, 9):
        life.left = requests
        try:
            mc.prune(store, keep=KEEP)
            break
        except Dead:
            life.left = None
        assert {3, 6, 7} <= set(steps(store))
        if open_intents(store):
            unfinished += 1
            mc.prune(store)
        mc.prune(store, keep=KEEP)
        assert steps(store) == [3, 6, 7]
        assert open_intents(store) == []
        for step in (1, 2, 4, 5):
            assert mc.undelete(store, step=step).step == step

    assert requests > 50
    assert unfinished > 3


def test_a_store_that_does_not_answer_removes_nothing(store, monkeypatch):
    def refuse(self, folder=""):
        raise StorageFailure("no route to host")

    monkeypatch.setattr(Bucket, "list", refuse)

    with pytest.raises(StorageFailure, match=r"no route to host"):
        mc.prune(store, keep=KEEP)
    monkeypatch.undo()
    assert steps(store) == list(range(1, 8))
