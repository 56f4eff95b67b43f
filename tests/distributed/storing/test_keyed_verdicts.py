"""What becomes of an attempt of many ranks is decided once; files are put into a checkpoint that is still the same."""

import pytest
from tests.distributed.storing.keyed_ground import put, read, saved

from model_checkpoint.distributed.storing.keyed_attempt import GIVEN_UP, mark_path, verdict_path
from model_checkpoint.distributed.storing.keyed_files import KeyedRecord, encode_record
from model_checkpoint.errors import (
    RootNotShared,
    StorageFailure,
    UnsafeName,
)

DAY = 24 * 3600.0


def test_ranks_put_their_files_under_one_attempt(storage, store):
    with pytest.raises(RootNotShared, match="what rank 0 has begun is not there on this rank"):
        store.join("first", "attempt-1")
    leader = put(store.stage_shared("first", "attempt-1"), x=b"abc")
    joined = put(store.join("first", "attempt-1"), y=b"de")

    for one in (leader, joined):
        assert {file: (stat.size, stat.identity) for file, stat in one.stamps().items()} == {
            "x": (3, "data/attempt-1/x"),
            "y": (2, "data/attempt-1/y"),
        }
    assert read(joined.open("x")) == b"abc"
    with pytest.raises(StorageFailure, match="the attempt is over"):
        joined.publish(b"by another")
    leader.publish(b"manifest")
    joined.abort()
    with pytest.raises(StorageFailure, match="the attempt is over"):
        joined.create("z", 1)

    assert store.files("first") == {"x": 3, "y": 2, "manifest.json": 8}
    assert store.settle("first", "attempt-1") is True
    assert storage.exists(verdict_path("attempt-1"))
    for name, attempt in (("../first", "attempt-1"), ("first", "../attempt")):
        for ask in (store.settle, store.join, store.stage, store.mend, store.stage_shared):
            with pytest.raises(UnsafeName, match=r"\.\./"):
                ask(name, attempt)


def test_who_gives_an_attempt_up_first_has_decided(storage, store):
    leader = put(store.stage_shared("first", "attempt-1"), x=b"abc")

    assert store.settle("first", "attempt-1") is False
    assert store.settle("first", "attempt-1") is False

    assert (storage.list("data/"), storage.list(".attempts/")) == ([], [])
    with pytest.raises(StorageFailure, match="the attempt is over"):
        leader.publish(b"manifest")
    assert store.names() == []


@pytest.mark.parametrize("marked", [True, False])
def test_what_was_decided_is_carried_out_by_whoever_asks_while_its_mark_is_there(storage, store, marked):
    put(store.stage_shared("first", "attempt-1"), x=b"abc")
    record = KeyedRecord(attempt="attempt-1", files={"x": ("data/attempt-1/x", 3)}, manifest=b"manifest")
    storage.write(verdict_path("attempt-1"), encode_record(record))
    if not marked:
        storage.delete(mark_path("attempt-1"))

    assert store.settle("first", "attempt-1") is True

    assert store.names() == (["first"] if marked else [])
    assert storage.list("data/") == ["data/attempt-1/x"]


@pytest.mark.parametrize(
    ("over", "stands", "left"),
    [
        ("attempt-0", "attempt-0", "attempt-1"),
        ("attempt-0", "attempt-2", "attempt-2"),
        (None, "attempt-2", "attempt-1"),
    ],
)
def test_a_replacement_that_was_decided_does_not_replace_what_came_since(storage, store, over, stands, left):
    store.stage_shared("first", "attempt-1")
    saved(store, "first", stands)
    record = KeyedRecord(attempt="attempt-1", files={}, manifest=b"decided", replace=True, over=over)
    storage.write(verdict_path("attempt-1"), encode_record(record))

    assert store.settle("first", "attempt-1") is True

    assert store.read_manifest("first") == (b"decided" if left == "attempt-1" else b"manifest")


def test_a_decision_for_a_name_that_is_taken_is_not_published(storage, store):
    put(store.stage_shared("first", "attempt-1"), x=b"abc")
    saved(store, "first", "attempt-2")
    record = KeyedRecord(attempt="attempt-1", files={}, manifest=b"decided")
    storage.write(verdict_path("attempt-1"), encode_record(record))

    assert store.settle("first", "attempt-1") is False
    assert store.read_manifest("first") == b"manifest"


def test_files_are_mended_if_the_checkpoint_is_still_the_one_that_was_looked_at(storage, store):
    saved(store, "first", x=b"abc", y=b"de")
    mending = put(store.mend("first", "attempt-2"), x=b"ABC")
    loose = mending.create("z", 1)
    with pytest.raises(StorageFailure, match=r"1 files are not sealed \(z\)"):
        mending.finish(over=b"manifest")
    loose.write(0, memoryview(b"z"))
    loose.seal()

    assert mending.finish(over=b"manifest") is True

    assert (read(store.open("first", "x")), read(store.open("first", "y"))) == (b"ABC", b"de")
    assert store.files("first") == {"x": 3, "y": 2, "z": 1, "manifest.json": 8}
    assert not storage.exists(mark_path("attempt-2"))
    assert (store.trash(), len(storage.list(".trash/"))) == ([], 1)
    with pytest.raises(StorageFailure, match="the attempt is over"):
        mending.finish(over=b"manifest")
    assert put(store.mend("first", "attempt-3"), w=b"w").finish(over=b"manifest", manifest=b"other") is True
    assert (store.read_manifest("first"), len(storage.list(".trash/"))) == (b"other", 1)
    for name, over in (("first", b"manifest"), ("second", b"manifest")):
        assert put(store.mend(name, f"attempt-{name}-4"), x=b"zzz").finish(over=over) is False
    assert read(store.open("first", "x")) == b"ABC"
    assert not storage.exists("data/attempt-first-4/x")


def test_a_leader_that_was_given_up_publishes_nothing_though_its_mark_is_still_there(storage, store):
    leader = put(store.stage_shared("first", "attempt-1"), x=b"abc")
    storage.write(verdict_path("attempt-1"), GIVEN_UP)

    with pytest.raises(StorageFailure, match="the attempt is over"):
        leader.publish(b"manifest")

    assert store.names() == []
    assert store.settle("first", "attempt-1") is False
    assert storage.list("data/") == []
