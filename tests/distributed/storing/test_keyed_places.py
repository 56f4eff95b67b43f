"""Checkpoints in a storage of seven calls: what is found there, what is kept there, and what is refused."""

import pytest
from tests.distributed.api.own_parts import OwnHandler, OwnStorage
from tests.distributed.storing.keyed_ground import put, read, saved

from model_checkpoint.distributed.storing.keyed_attempt import is_living, mark_path
from model_checkpoint.distributed.storing.keyed_files import KeyedRecord, encode_record, record_path
from model_checkpoint.distributed.storing.keyed_store import KeyedStore
from model_checkpoint.errors import (
    CheckpointNotFound,
    CorruptedCheckpoint,
    MemoryRefused,
    StepExists,
    StorageFailure,
    Truncated,
    UnsafeName,
)

DAY = 24 * 3600.0


def test_a_storage_is_called_by_its_url_or_its_class():
    named = OwnStorage()
    named.url = "/bucket/run"

    assert KeyedStore(named).url == "storage://bucket/run"
    assert KeyedStore(OwnStorage()).url.startswith("storage://OwnStorage-")
    assert KeyedStore(named).retried(OwnHandler()).url == "storage://bucket/run"


@pytest.mark.parametrize("path", ["checkpoints/a/b", ".attempts/a", ".trash/a", "data/a/b"])
def test_a_place_exists_once_anything_was_kept_there(storage, store, path):
    assert store.exists() is False
    storage.write("other/a", b"")
    assert store.exists() is False

    storage.write(path, b"")

    assert store.exists() is True


def test_only_a_record_has_a_name(storage, store):
    saved(store, "first", x=b"abc")
    saved(store, "second")
    for stray in ("checkpoints/loose", "checkpoints/third/notes.txt", "checkpoints/deep/er/manifest.json"):
        storage.write(stray, b"")

    assert sorted(store.names()) == sorted(store.entries()) == ["first", "second"]
    assert [store.has(name) for name in ("first", "third", "../first", "")] == [True, False, False, False]
    storage.write("checkpoints/../manifest.json", b"")
    assert store.has("..") is False


def test_files_sizes_and_stamps_are_those_that_were_saved(storage, store):
    saved(store, "first", x=b"abc", y=b"")

    assert store.read_manifest("first") == b"manifest"
    assert store.files("first") == {"x": 3, "y": 0, "manifest.json": 8}
    stamps = {file: (one.size, one.identity, one.links) for file, one in store.stamps("first").items()}
    assert stamps == {
        "x": (3, "data/attempt-first/x", 1),
        "y": (0, "data/attempt-first/y", 1),
        "manifest.json": (8, "checkpoints/first/manifest.json", 1),
    }
    assert (read(store.open("first", "x")), read(store.open("first", "x"), 1, 2)) == (b"abc", b"b")
    assert (store.free_bytes(), store.open("first", "x").map()) == (None, None)


def test_a_record_without_a_manifest_has_an_empty_one(storage, store):
    record = KeyedRecord(attempt="a", files={"x": ("data/a/x", 3)}, manifest=None)
    storage.write(record_path("first"), encode_record(record))

    assert store.read_manifest("first") == b""
    assert store.files("first") == {"x": 3, "manifest.json": 0}
    assert store.stamps("first")["manifest.json"].size == 0
    assert store.discard("first").nbytes == 3


def test_what_is_not_there_is_named(storage, store):
    saved(store, "first", x=b"abc")

    for ask in (store.read_manifest, store.files, store.stamps, store.discard):
        with pytest.raises(CheckpointNotFound, match=r"/checkpoints/second: no such checkpoint"):
            ask("second")
        with pytest.raises(UnsafeName, match="second"):
            ask("../second")
    for name, file, why in (("second", "x", "second"), ("first", "y", "the file y is gone")):
        with pytest.raises(Truncated, match=why):
            store.open(name, file)
    for name, file in (("../first", "x"), ("first", "../x")):
        with pytest.raises(UnsafeName, match=r"\.\./"):
            store.open(name, file)
    reader = store.open("first", "x")
    storage.delete("data/attempt-first/x")
    with pytest.raises(Truncated, match="the file x is gone"):
        read(reader)
    with pytest.raises(Truncated, match="the file x is gone"):
        store.open("first", "x")
    reader.read_into(0, memoryview(bytearray()))  # nothing is asked for
    storage.write("data/attempt-first/x", b"ab")
    with pytest.raises(Truncated, match="x ends at byte 2, expected bytes 1 to 3"):
        read(reader, 1, 3)
    storage.write(record_path("first"), b"\xff")
    with pytest.raises(CorruptedCheckpoint, match="the record of this checkpoint cannot be read"):
        store.files("first")


def test_a_file_is_written_within_its_size_and_sealed_once(store, storage):
    attempt = store.stage("first", "attempt-1")
    writer = attempt.create("x", 4)
    assert (writer.alignment, writer.size, writer.sealed) == (1, 4, False)
    for offset, data in ((-1, b"a"), (4, b"a"), (0, b"abcde")):
        with pytest.raises(StorageFailure, match=f"bytes {offset} to .* lie outside the 4 announced"):
            writer.write(offset, memoryview(data))
    with pytest.raises(StorageFailure, match="only 0 of the 4 bytes announced were written"):
        writer.seal()
    writer.write(1, memoryview(b"bcd"))
    for size in (4, -1, 5):
        with pytest.raises(StorageFailure, match="only 3 of the"):
            writer.seal(size)
    with pytest.raises(StorageFailure, match=r"1 files are not sealed \(x\)"):
        attempt.publish(b"manifest")
    writer.write(0, memoryview(b"a"))

    writer.seal(3)

    assert (writer.size, writer.sealed, storage.read("data/attempt-1/x")) == (3, True, b"abc")
    for late in (lambda: writer.write(0, memoryview(b"z")), writer.seal):
        with pytest.raises(StorageFailure, match="cannot go on with the file"):
            late()
    empty = attempt.create("y", 4)
    empty.seal(0)
    assert storage.read("data/attempt-1/y") == b""
    for file in ("X", "x", "../z"):
        with pytest.raises(UnsafeName, match=r"X|x|\.\./z"):
            attempt.create(file, 1)


def test_a_file_that_does_not_fit_into_memory_is_refused(store):
    with pytest.raises(MemoryRefused, match=f"no memory for {1 << 60} bytes. Save to a disk"):
        store.stage("first", "attempt-1").create("x", 1 << 60)


def test_two_checkpoints_have_a_file_in_common(storage, store):
    saved(store, "first", x=b"abc")
    identity = store.stamps("first")["x"].identity
    attempt = store.stage("second", "attempt-2")

    assert not attempt.link("x", source="nobody", source_file="x", identity=identity)
    assert not attempt.link("x", source="first", source_file="y", identity=identity)
    assert not attempt.link("x", source="first", source_file="x", identity="another")
    assert attempt.link("x", source="first", source_file="x", identity=identity)
    for again in (lambda: attempt.create("X", 1), lambda: attempt.link("x", source="a", source_file="x", identity="b")):
        with pytest.raises(UnsafeName, match=r"the file name '[xX]'"):
            again()
    put(attempt, y=b"de")
    assert {file: (one.size, one.identity, one.links) for file, one in attempt.stamps().items()} == {
        "x": (3, identity, 1),
        "y": (2, "data/attempt-2/y", 1),
    }
    attempt.publish(b"other")

    assert store.files("second") == {"x": 3, "y": 2, "manifest.json": 5}
    assert [store.stamps(name)["x"].links for name in ("first", "second")] == [2, 2]
    store.discard("first")
    assert store.stamps("second")["x"].links == 2  # a deletion can be undone


def test_files_of_an_attempt_are_read_and_dropped_before_it_is_published(store, storage):
    attempt = put(store.stage("first", "attempt-1"), x=b"abc", y=b"de")

    assert read(attempt.open("x")) == b"abc"
    attempt.drop(["x"])

    assert storage.list("data/") == ["data/attempt-1/y"]
    assert attempt.stamps().keys() == {"y"}
    with pytest.raises(Truncated, match="the file x is gone"):
        attempt.open("x")
    for ask in (lambda: attempt.open("../y"), lambda: attempt.drop(["../y"])):
        with pytest.raises(UnsafeName, match=r"\.\./y"):
            ask()
    attempt.flush()
    attempt.publish(b"manifest")
    assert store.files("first") == {"y": 2, "manifest.json": 8}


@pytest.mark.parametrize("end", ["publish", "abort"])
def test_an_attempt_that_is_over_takes_nothing_more(storage, store, end):
    attempt = put(store.stage("first", "attempt-1"), x=b"abc")
    assert storage.exists(mark_path("attempt-1"))
    assert is_living(store.url, "attempt-1")

    attempt.publish(b"manifest") if end == "publish" else attempt.abort()

    assert not storage.exists(mark_path("attempt-1"))
    assert not is_living(store.url, "attempt-1")
    assert store.names() == (["first"] if end == "publish" else [])
    for late in (
        lambda: attempt.create("y", 1),
        lambda: attempt.open("x"),
        lambda: attempt.publish(b""),
        lambda: attempt.link("y", source="first", source_file="x", identity=""),
    ):
        with pytest.raises(StorageFailure, match="the attempt is over"):
            late()
    attempt.abort()  # nothing is left to be undone
    assert storage.list("data/") == (["data/attempt-1/x"] if end == "publish" else [])


def test_a_name_is_given_once_unless_it_shall_be_replaced(storage, store):
    saved(store, "first", x=b"abc", y=b"old")
    with pytest.raises(StepExists, match="/checkpoints/first: a checkpoint of that name exists; nothing was changed"):
        saved(store, "first", "attempt-2", x=b"new")
    assert read(store.open("first", "x")) == b"abc"

    put(store.stage("first", "attempt-3"), x=b"third").publish(b"other", replace=True, obsolete=["z"])
    assert store.files("first") == {"x": 5, "y": 3, "manifest.json": 5}
    assert [one.nbytes for one in store.trash()] == [14]
    put(store.stage("first", "attempt-4")).publish(b"other", replace=True, obsolete=["y"])
    assert store.files("first") == {"x": 5, "manifest.json": 5}
    put(store.stage("new", "attempt-5"), x=b"1").publish(b"other", replace=True)
    assert store.files("new") == {"x": 1, "manifest.json": 5}
    assert len(store.trash()) == 2
    with pytest.raises(UnsafeName, match=r"\.\./y"):
        put(store.stage("first", "attempt-6")).publish(b"other", replace=True, obsolete=["../y"])


def test_sidecars_are_found_by_a_word_of_their_key(storage, store):
    store.write_sidecar("note-1", b"one")
    store.write_sidecar("mark-2", bytearray(b"two"))

    assert sorted(store.read_sidecars()) == [("mark-2", b"two"), ("note-1", b"one")]
    assert list(store.read_sidecars("note")) == [("note-1", b"one")]
    assert list(store.read_sidecars("sidecars")) == []
    store.remove_sidecar("note-1")
    assert list(store.read_sidecars()) == [("mark-2", b"two")]
    for ask in (lambda: store.write_sidecar("../x", b""), lambda: store.remove_sidecar("../x")):
        with pytest.raises(UnsafeName, match=r"\.\./x"):
            ask()
