"""What is deleted can be brought back for a while; then it goes, with all that dead attempts have left."""

from datetime import UTC, datetime

import pytest
from tests.distributed.api.own_parts import OwnStorage
from tests.distributed.storing.keyed_ground import age, dead, put, read, saved
from tests.ground.crowds import in_child

from model_checkpoint.distributed.storing.keyed_attempt import is_living, mark_path, verdict_path
from model_checkpoint.distributed.storing.keyed_files import KeyedRecord, encode_record, record_path, trash_path
from model_checkpoint.distributed.storing.keyed_store import KeyedStore
from model_checkpoint.errors import (
    CheckpointNotFound,
    StepExists,
)
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.names import TrashToken

DAY = 24 * 3600.0


def test_a_deleted_checkpoint_can_be_brought_back_until_another_has_its_name(storage, store):
    saved(store, "first", x=b"abc")
    saved(store, "second", x=b"de")

    gone = [store.discard("first"), store.discard("second")]

    assert [(one.name, one.nbytes) for one in gone] == [("first", 11), ("second", 10)]
    assert (store.names(), store.trash()) == ([], gone)
    assert store.read_trashed(gone[0].token) == b"manifest"
    assert store.bring_back(gone[0].token) == "first"
    assert (store.names(), store.trash()) == (["first"], gone[1:])
    assert read(store.open("first", "x")) == b"abc"
    for ask in (store.read_trashed, store.bring_back):
        with pytest.raises(CheckpointNotFound, match="no such checkpoint in the trash"):
            ask(gone[0].token)
        with pytest.raises(CheckpointNotFound, match="nonsense"):
            ask("nonsense")
    saved(store, "second", "attempt-3", manifest=b"new")
    with pytest.raises(StepExists, match="so the deleted one stays in the trash"):
        store.bring_back(gone[1].token)
    assert (store.read_manifest("second"), store.trash()) == (b"new", gone[1:])


def test_a_deleted_replacement_comes_back_only_where_nothing_is(storage, store):
    """The record of a replacement says that it replaces; one that is brought back never does."""
    saved(store, "first")
    put(store.stage("first", "attempt-2")).publish(b"other", replace=True)
    gone = store.discard("first")
    saved(store, "first", "attempt-3", manifest=b"third")

    with pytest.raises(StepExists, match="so the deleted one stays in the trash"):
        store.bring_back(gone.token)
    assert store.read_manifest("first") == b"third"


def test_what_is_no_deletion_of_a_checkpoint_is_not_listed_in_the_trash(storage, store):
    token = str(TrashToken.fresh("first"))
    record = KeyedRecord(attempt="a", files={"x": ("data/a/x", 3)}, manifest=None)
    storage.write(trash_path(token), encode_record(record))
    storage.write(trash_path("nonsense"), b"")

    assert store.trash() == []
    for ask in (store.read_trashed, store.bring_back):
        with pytest.raises(CheckpointNotFound, match="no such checkpoint in the trash"):
            ask(token)


def test_a_sweep_of_nothing_writes_nothing(storage, store):
    saved(store, "first")

    swept = store.sweep(Graces())

    assert (swept.attempts, swept.trashed, swept.alive, swept.nbytes, swept.waiting) == ((), (), (), 0, ())
    assert storage.list("") == ["checkpoints/first/manifest.json"]


@pytest.mark.parametrize(("seconds", "dies"), [(DAY - 60, False), (DAY + 60, True)])
def test_a_dead_attempt_is_swept_when_its_grace_is_over(storage, store, seconds, dies):
    put(store.stage("first", "attempt-1"), x=b"abc")
    dead(store, "attempt-1")
    age(storage, mark_path("attempt-1"), seconds)
    told = []

    planned, before = store.sweep(Graces(), dry_run=True, tell=told.append), dict(storage.kept)
    assert told == []
    swept = store.sweep(Graces(), tell=told.append)

    assert list(swept.attempts) == list(planned.attempts) == told == (["attempt-1"] if dies else [])
    assert swept.nbytes == planned.nbytes == (3 if dies else 0)
    assert [one.key for one in swept.waiting] == ([] if dies else ["attempt-1"])
    assert all(0 < one.seconds <= 60 for one in swept.waiting)
    assert set(before) == {mark_path("attempt-1"), "data/attempt-1/x"}
    assert set(storage.kept) == ({verdict_path("attempt-1")} if dies else set(before))


def test_a_dead_attempt_that_has_put_nothing_is_swept_too(storage, store):
    store.stage("first", "attempt-1")
    dead(store, "attempt-1")
    age(storage, mark_path("attempt-1"), 2 * DAY)

    assert list(store.sweep(Graces()).attempts) == ["attempt-1"]
    assert storage.list(".attempts/") == []


def test_an_attempt_of_this_process_is_alive_however_old_it_is(storage, store):
    attempt = put(store.stage("first", "attempt-1"), x=b"abc")
    age(storage, mark_path("attempt-1"), 9 * DAY)

    swept = store.sweep(Graces())

    assert (list(swept.attempts), list(swept.alive), swept.nbytes) == ([], ["attempt-1"], 0)
    assert [(one.key, one.seconds) for one in swept.waiting] == [("attempt-1", None)]
    attempt.publish(b"manifest")
    assert read(store.open("first", "x")) == b"abc"


@pytest.mark.parametrize(("seconds", "goes"), [(DAY - 60, False), (DAY + 60, True)])
def test_a_deletion_is_swept_when_its_grace_is_over_but_for_what_others_hold(storage, store, seconds, goes):
    saved(store, "first", x=b"abc", y=b"de")
    attempt = store.stage("second", "attempt-2")
    assert attempt.link("x", source="first", source_file="x", identity="data/attempt-first/x")
    attempt.publish(b"other")
    token, told = store.discard("first").token, []
    age(storage, trash_path(token), seconds)

    swept = store.sweep(Graces(), tell=told.append)

    assert list(swept.trashed) == told == ([token] if goes else [])
    assert swept.nbytes == (2 + 8 if goes else 0)
    assert [one.key for one in swept.waiting] == ([] if goes else [token])
    assert storage.exists("data/attempt-first/y") is not goes
    assert read(store.open("second", "x")) == b"abc"


def test_what_no_record_names_is_swept_unless_its_attempt_is_under_way(storage, store):
    put(store.stage("first", "attempt-1"), x=b"abc")
    storage.write("data/attempt-0/y", b"left behind")

    swept = store.sweep(Graces())

    assert swept.nbytes == len(b"left behind")
    assert storage.list("data/") == ["data/attempt-1/x"]
    assert storage.list(".clock/") == []


@pytest.mark.parametrize(("seconds", "goes"), [(DAY - 60, False), (DAY + 60, True)])
def test_a_verdict_is_swept_a_grace_after_its_mark_is_gone(storage, store, seconds, goes):
    store.stage_shared("first", "attempt-1").publish(b"manifest")
    age(storage, verdict_path("attempt-1"), seconds)
    size = len(storage.read(verdict_path("attempt-1")))

    assert store.sweep(Graces()).nbytes == (size if goes else 0)
    assert storage.exists(verdict_path("attempt-1")) is not goes


class Noon(OwnStorage):
    """A storage whose clock counts no smaller steps than days."""

    def write(self, path, data):
        self.kept[path] = (bytes(data), datetime(2026, 1, 1, 12, tzinfo=UTC))


def test_without_a_grace_all_goes_at_once_however_coarse_the_clock_of_the_storage_is():
    storage = Noon()
    store = KeyedStore(storage)
    saved(store, "first", x=b"abc")
    token = store.discard("first").token
    put(store.stage("second", "attempt-2"), y=b"de")
    dead(store, "attempt-2")

    swept = store.sweep(Graces(foreign=0.0, trash=0.0))

    assert (list(swept.attempts), list(swept.trashed), list(swept.waiting)) == (["attempt-2"], [token], [])
    assert storage.list("") == [verdict_path("attempt-2")]
    store.sweep(Graces(foreign=0.0))
    assert storage.list("") == []


def test_a_damaged_deletion_of_parts_weighs_nothing_but_goes(storage, store):
    token = str(TrashToken.fresh("first"))
    storage.write(trash_path(token), encode_record(KeyedRecord(attempt="a", files={}, manifest=None)))
    age(storage, trash_path(token), 2 * DAY)

    swept = store.sweep(Graces())

    assert (list(swept.trashed), swept.nbytes, storage.list(".trash/")) == ([token], 0, [])


def test_a_forked_child_has_no_attempts_under_way(store):
    store.stage("first", "attempt-1")

    def work():
        assert not is_living(store.url, "attempt-1")

    assert in_child(work) == 0
    assert is_living(store.url, "attempt-1")


def test_a_deletion_that_was_cut_short_is_not_undone_over_what_still_stands(storage, store):
    saved(store, "first")
    standing = storage.read(record_path("first"))
    gone = store.discard("first")
    storage.write(record_path("first"), standing)  # as if the process had died before it took the record away

    with pytest.raises(StepExists, match="so the deleted one stays in the trash"):
        store.bring_back(gone.token)
    assert (store.names(), store.trash()) == (["first"], [gone])
