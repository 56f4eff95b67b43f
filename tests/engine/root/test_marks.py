"""Pins, tags and notes are kept in the root, follow their checkpoint, and are believed only if they are ours."""

import errno
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.ground.scenes import link_tree

import model_checkpoint as mc
from model_checkpoint.engine.root.marks import read_marks
from model_checkpoint.errors import (
    CheckpointNotFound,
    DiskFull,
    ManifestInvalid,
    OptionInvalid,
    StorageFailure,
    UnsafeName,
    WrongReference,
)
from model_checkpoint.storage import LocalStore, open_store
from model_checkpoint.storage.contract.sidecars import seal
from model_checkpoint.testing import Ended, Fault, Kind, each_call
from model_checkpoint.testing.blobs import AT_ONCE


@pytest.fixture(params=["folder", "memory"])
def root(request, tmp_path):
    root = tmp_path / "runs" if request.param == "folder" else f"memory://marks/{tmp_path.name}"
    for step in (1, 2):
        mc.save(root, {"a": step}, step=step, metrics={"loss": step})
    return root


def marks(root):
    return {info.step: (info.pinned, info.tags, info.note) for info in mc.list_checkpoints(root)}


def test_marks_are_told_by_list_and_describe(root):
    mc.pin(root, step=1)
    mc.tag(root, "paper", "a tag of words", best="loss")
    mc.note(f"{root}@1", "before\nthe \u0001 new data")

    assert marks(root) == {1: (True, ("a tag of words", "paper"), "before\nthe \u0001 new data"), 2: (False, (), "")}
    assert mc.describe(f"{root}@1").info.tags == ("a tag of words", "paper")


def test_the_newest_is_marked_if_none_is_named_but_never_unmarked(root):
    assert mc.pin(root).step == 2
    with pytest.raises(OptionInvalid, match=r"say which checkpoint to take a pin off"):
        mc.unpin(root)
    with pytest.raises(OptionInvalid, match=r"say which tags"):
        mc.untag(root, step=1)

    assert mc.unpin(root, step=2).pinned is False
    assert mc.unpin(root, step=2).pinned is False


def test_marks_are_taken_off_one_by_one(root):
    mc.tag(root, "x", "y", step=1)
    mc.note(root, "first", step=1)
    assert mc.note(root, "second", step=1).note == "second"

    assert mc.untag(root, "x", "never", step=1).tags == ("y",)
    assert mc.note(root, "", step=1).note == ""


def test_marks_follow_a_deletion_and_its_undoing(root):
    mc.pin(root, step=1)
    mc.delete(root, step=1)
    mc.collect_garbage(root)

    assert mc.undelete(root, step=1).step == 1
    assert marks(root)[1][0]


def test_marks_of_what_is_gone_for_good_are_cleared_and_no_others(root):
    mc.pin(root, step=1)
    mc.pin(root, step=2)
    mc.delete(root, step=1)

    mc.collect_garbage(root, graces=AT_ONCE)

    assert len(read_marks(open_store(root))) == 1
    assert marks(root) == {2: (True, (), "")}


def test_a_checkpoint_that_takes_the_name_of_a_pinned_one_is_not_pinned(root):
    mc.pin(root, step=1)
    mc.save(root, {"a": 9}, step=1, overwrite=True)

    assert marks(root)[1][0] is False


@pytest.mark.parametrize("text", ["", " ", 3, "x" * 10_001])
def test_what_is_no_tag_is_refused(root, text):
    with pytest.raises(OptionInvalid, match=r"a tag is a text of 1 to 10000 characters"):
        mc.tag(root, text, step=1)


def test_what_is_not_there_cannot_be_marked(root, tmp_path):
    with pytest.raises(WrongReference, match=r"no step 7"):
        mc.pin(root, step=7)
    with pytest.raises(CheckpointNotFound, match=r"no such checkpoint root"):
        mc.pin(tmp_path / "elsewhere")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "runs"
    for step in (1, 2):
        mc.save(folder, {"a": step}, step=step)
    return folder


def sidecar(folder):
    (path,) = (folder / ".sidecars").iterdir()
    return path


def test_what_cannot_be_read_cannot_be_marked(folder):
    (folder / "checkpoints/step-00000001/manifest.json").write_bytes(b"noise")

    with pytest.raises(ManifestInvalid, match=r"cannot be used"):
        mc.pin(folder, step=1)


def test_a_folder_that_was_renamed_or_copied_keeps_its_marks(folder, tmp_path):
    mc.pin(folder, step=1)
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy/checkpoints/step-00000001").rename(tmp_path / "copy/checkpoints/renamed")

    assert {info.prefix: info.pinned for info in mc.list_checkpoints(tmp_path / "copy")} == {
        "step-00000002": False,
        "renamed": True,
    }


def spoil(path, how):
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[:-1])
    elif how == "flipped":
        path.write_bytes(data.replace(b"pin", b"pim", 1))
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "foreign":
        path.write_bytes(seal(json.dumps({"checkpoint": "x", "kind": "pin", "text": "", "made": ""}).encode()))
    elif how == "unknown field":
        path.write_bytes(seal(data.partition(b"\n")[0][:-1] + b',"evil":1}'))
    elif how == "huge":
        path.write_bytes(b"x" * (1 << 21))
    elif how == "link":
        path.rename(path.parent.parent / "aside")
        path.symlink_to(path.parent.parent / "aside")
    elif how == "pipe":
        path.unlink()
        os.mkfifo(path)
    else:
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize(
    "how", ["cut", "flipped", "empty", "foreign", "unknown field", "huge", "link", "pipe", "folder"]
)
def test_a_mark_that_is_not_ours_marks_nothing_but_keeps_its_checkpoint_from_going(folder, how):
    mc.pin(folder, step=1)
    spoil(sidecar(folder), how)

    assert marks(folder)[1][0] is False
    plan = mc.prune(folder, keep=[mc.last(1)])
    assert plan.done == ()
    assert "may be pinned" in plan.decisions[1].reasons[0]


def test_files_of_strangers_beside_the_marks_mean_nothing(folder):
    mc.pin(folder, step=2)
    (folder / ".sidecars/README").write_text("hello")
    (folder / ".sidecars/pin.nobody").write_text("hello")
    (folder / ".sidecars/tag.").write_text("hello")
    (folder / ".sidecars/.hidden file").write_text("hello")

    assert marks(folder) == {1: (False, (), ""), 2: (True, (), "")}
    assert mc.prune(folder, keep=[mc.last(1)]).done == ("step-00000001",)
    mc.collect_garbage(folder, graces=AT_ONCE)
    assert {"README", "tag.", ".hidden file"} < {path.name for path in (folder / ".sidecars").iterdir()}


def test_a_link_in_place_of_the_marks_is_never_followed(folder, tmp_path, caplog):
    (tmp_path / "elsewhere").mkdir()
    (folder / ".sidecars").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UnsafeName, match=r"is a link"):
        mc.pin(folder, step=1)
    with pytest.raises(UnsafeName, match=r"is a link"):
        mc.prune(folder, keep=[mc.last(1)])
    assert marks(folder)[1] == (False, (), "")
    assert "cannot be read" in caplog.text
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_many_may_mark_at_once_and_no_mark_is_lost(root):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: mc.tag(root, f"t{n}", step=1), range(24)))

    assert len(marks(root)[1][1]) == 24


def test_a_store_that_keeps_no_marks_says_so(folder):
    class Plain:
        """A store as it was before there were marks."""

        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            if "sidecar" in name:
                raise AttributeError(name)
            return getattr(self._inner, name)

    plain = Plain(LocalStore(folder))
    with pytest.raises(StorageFailure, match=r"keeps no pins, tags or notes. Give Plain the methods"):
        mc.pin(plain, step=1)
    assert [info.step for info in mc.list_checkpoints(plain)] == [2, 1]
    assert mc.prune(plain, keep=[mc.last(1)]).done == ("step-00000001",)


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("work", ["pin", "unpin", "note"])
@pytest.mark.parametrize("kind", [Kind.KILL_BEFORE, Kind.KILL_AFTER, Kind.FAIL, Kind.LOSE_REPLY])
def test_a_mark_that_dies_or_fails_is_there_or_not_and_recovery_leaves_nothing(quick_folder, kind, work):
    folder, ready = quick_folder / "runs", quick_folder / "work"
    for step in (1, 2):
        mc.save(folder, {"a": step}, step=step)
    if work != "pin":
        mc.pin(folder, step=1)
    if work == "note":
        mc.note(folder, "old", step=1)
    before = marks(folder)
    todo = {"pin": mc.pin, "unpin": mc.unpin, "note": lambda store, step: mc.note(store, "new", step=step)}[work]

    def mark(calls):
        return bool(todo(LocalStore(ready, calls=calls), step=1))

    after = {"pin": (True, (), ""), "unpin": (False, (), ""), "note": (True, (), "new")}[work]
    fault, points = Fault(kind=kind, at=0, code=errno.EIO), 0
    for at, outcome in each_call(mark, fault, prepare=lambda: link_tree(folder, ready)):
        points, found = at, marks(ready)
        assert found[1] in (before[1], after)
        assert found[2] == before[2]
        if outcome.acknowledged:
            assert found[1] == after
        mc.collect_garbage(ready, graces=AT_ONCE)
        assert marks(ready) == found
        assert list((ready / ".staging").iterdir()) == []
        assert not [path for path in Path(ready).rglob("sidecar")]
        assert outcome.ended is not Ended.RAISED or isinstance(outcome.error, StorageFailure)
    assert points > 8


def test_without_room_a_pin_is_refused_and_an_old_one_can_still_be_taken_off(folder):
    mc.pin(folder, step=1)

    class Full(LocalStore):
        """A disk that takes no more."""

        def write_sidecar(self, key, data):
            raise DiskFull(f"{self.url}: full", self.url)

    with pytest.raises(DiskFull, match=r"full"):
        mc.pin(Full(folder), step=2)
    assert mc.unpin(Full(folder), step=1).pinned is False
