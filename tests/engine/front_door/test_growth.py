"""What a save or load costs does not depend on how many checkpoints there are, and yet finds the same one."""

import os
import shutil
import threading
import uuid
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import model_checkpoint as mc
from model_checkpoint import errors
from model_checkpoint.engine.root.listing import candidates, scan
from model_checkpoint.manifest import HEAD_BYTES, Entry, decode, encode
from model_checkpoint.plan import rank_by_age, step_name
from model_checkpoint.storage import InMemoryStore, LocalStore
from model_checkpoint.testing import FaultyCalls

STATE = {"w": np.arange(6.0), "epoch": 1}


class LongAgo(FaultyCalls):
    """Records every call; folders look as if they had been changed long ago, so that what was listed is kept."""

    def stat(self, path):
        info = super().stat(path)
        times = {f"st_{kind}time_ns": getattr(info, f"st_{kind}time_ns") % 10**18 for kind in "amc"}  # of the nineties
        return os.stat_result((*info[:7], 0, 0, 0), times)


def grow(root, upto):
    """Copies of the first checkpoint, each with a step and folder of its own."""
    first = root / "checkpoints" / step_name(0)
    manifest = decode((first / "manifest.json").read_bytes(), "here")
    for step in range(len(list(first.parent.iterdir())), upto):
        folder = first.with_name(step_name(step))
        shutil.copytree(first, folder)
        changed = msgspec.structs.replace(manifest, step=step, name=folder.name, id=f"{step:032x}")
        (folder / "manifest.json").write_bytes(encode(changed))


def calls_of(root, action):
    """How often each call is made when the same is done for the second time."""
    action(LocalStore(root, calls=LongAgo()), 0)
    calls = LongAgo()
    action(LocalStore(root, calls=calls), 1)
    return sorted(call.name for call in calls.trace)


@pytest.mark.parametrize(
    "action",
    [
        lambda store, again: mc.save(store, STATE, step=10**6 + again),
        lambda store, again: mc.save(store, STATE, step=10**6 + again, incremental=True),
        lambda store, again: mc.save(store, STATE, step=3, overwrite=True),
        lambda store, again: mc.load(store),
        lambda store, again: mc.load(store, fallback=True),
        lambda store, again: mc.load(store, step=4),
        lambda store, again: mc.load(store, name=step_name(5)),
        lambda store, again: mc.load_slice(store, "w", 3, step=6),
        lambda store, again: mc.verify(store, step=7),
        lambda store, again: (mc.delete(store, step=8), mc.undelete(store, step=8)),
    ],
    ids=["save", "incremental", "overwrite", "newest", "fallback", "step", "name", "slice", "verify", "delete"],
)
def test_the_number_of_storage_calls_does_not_depend_on_the_number_of_checkpoints(tmp_path, action):
    few, many = tmp_path / "few", tmp_path / "many"
    for root, count in ((few, 10), (many, 200)):
        mc.save(root, STATE, step=0)
        grow(root, count)

    assert calls_of(few, action) == calls_of(many, action)


def put(store, name, *, step, created, left_out=()):
    """A checkpoint that is nothing but its manifest."""
    manifest = decode(InMemoryStore("memory://growth-template").read_manifest("template"), "here")
    changed = msgspec.structs.replace(
        manifest, step=step, name=name, created=f"2026-01-01T00:00:{created:02d}+00:00", left_out=left_out
    )
    store.stage(name, f"of-{name}").publish(encode(changed))


@pytest.fixture(scope="module", autouse=True)
def template():
    mc.save("memory://growth-template", STATE, name="template", overwrite=True)


checkpoint = st.tuples(st.sampled_from(["told", "high", "kept"]), st.integers(0, 6), st.integers(0, 3), st.booleans())


@given(st.lists(checkpoint, max_size=12))
def test_the_order_of_choices_is_that_of_all_manifests_unless_a_name_tells_too_low_a_step(drawn):
    """Folders have the name of their step, one of a higher step, or one that tells nothing."""
    store = InMemoryStore(f"memory://growth-{uuid.uuid4().hex}")
    for i, (kind, step, created, complete) in enumerate(drawn):
        names = {"told": step_name(step), "high": step_name(step + 2), "kept": f"kept-{i}"}
        if not store.has(names[kind]):
            put(store, names[kind], step=step, created=created, left_out=() if complete else ("optimizer",))
    expected = [one.name for one in rank_by_age(scan(store)) if one.complete]

    found = [one.name for one in candidates(store)] if expected else []

    assert found == expected


def test_a_step_is_the_folder_of_that_name_and_else_whatever_was_saved_at_it(tmp_path):
    mc.save(tmp_path, {"from": "folder"}, step=5)
    mc.save(tmp_path, {"from": "copy"}, step=5, name="kept")

    assert mc.load(tmp_path, step=5) == {"from": "folder"}
    assert mc.load(tmp_path) == {"from": "copy"}  # the later of the two

    (tmp_path / "checkpoints" / step_name(5)).rename(tmp_path / "checkpoints" / step_name(9))
    assert mc.load(tmp_path, step=5) == {"from": "copy"}
    assert mc.load(tmp_path, name=step_name(9)) == {"from": "folder"}
    with pytest.raises(errors.WrongReference, match=r"no step 9; there are 2: 5, 5\."):
        mc.load(tmp_path, step=9)


def test_a_fallback_from_a_step_goes_on_to_others_of_the_step_and_then_to_older_ones(tmp_path):
    for step, name in ((1, None), (3, None), (3, "kept"), (2, "early"), (7, None)):
        mc.save(tmp_path, {"from": name or step}, step=step, name=name)
    (tmp_path / "checkpoints" / step_name(3) / "manifest.json").write_bytes(b"nonsense")

    found = candidates(LocalStore(tmp_path), step=3)

    assert [one.name for one in found] == [step_name(3), "kept", "early", step_name(1)]
    with pytest.warns(mc.CheckpointWarning, match=r"passed over: .*step-00000003: ManifestInvalid"):
        assert mc.load(tmp_path, step=3, fallback=True) == {"from": "kept"}


def test_a_name_that_tells_another_step_is_refused(tmp_path):
    with pytest.raises(errors.OptionInvalid, match=r"name='step-00000009' is the folder of another step than step=5"):
        mc.save(tmp_path, STATE, step=5, name="step-00000009")

    assert mc.save(tmp_path, STATE, step=5, name="step-00000005").step == 5
    assert not Path(tmp_path / "checkpoints" / "step-00000009").exists()


def test_what_is_no_checkpoint_has_no_place_among_them(tmp_path):
    """Folders without a manifest, files, links, and names nothing is saved under."""
    mc.save(tmp_path, STATE, step=1)
    folder = tmp_path / "checkpoints"
    (folder / step_name(9)).mkdir()
    (folder / step_name(8)).write_bytes(b"a file")
    (folder / step_name(7)).symlink_to(folder / step_name(1))
    (folder / "with a blank").mkdir()

    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [1]
    assert mc.load(tmp_path)["epoch"] == 1
    for name in (step_name(9), step_name(8), step_name(7), "with a blank", "../checkpoints"):
        with pytest.raises(errors.WrongReference, match="no checkpoint named"):
            mc.load(tmp_path, name=name)


def test_a_listing_reads_only_the_head_of_a_long_manifest(tmp_path):
    info = mc.save(tmp_path, STATE, step=1, metrics={"loss": 0.5})
    path = Path(info.path) / "manifest.json"
    manifest = decode(path.read_bytes(), "here")
    rows = tuple(
        Entry(f"w{i}", "numpy", "float64", (1,), "F64", None, 0, 0, 8, uuid.uuid4().hex) for i in range(150_000)
    )
    path.write_bytes(encode(msgspec.structs.replace(manifest, entries=rows)))
    calls = Counting()

    (found,) = mc.list_checkpoints(LocalStore(tmp_path, calls=calls))

    assert (found.problem, found.metrics, found.size_bytes) == ("", {"loss": 0.5}, info.size_bytes)
    assert calls.nbytes <= HEAD_BYTES < path.stat().st_size / 10


class Counting(FaultyCalls):
    """Counts the bytes that are read."""

    nbytes = 0

    def preadv(self, fd, buffer, offset):
        count = super().preadv(fd, buffer, offset)
        self.nbytes += count
        return count


def test_a_tiny_save_starts_no_thread_and_flushes_nothing_twice(tmp_path):
    """Each save opens the root anew, as one with a path does."""
    calls, threads = FaultyCalls(), set()
    mc.save(LocalStore(tmp_path, calls=calls), STATE, step=1)
    calls.trace.clear()

    mc.save(LocalStore(tmp_path, calls=calls), STATE, step=2, progress=lambda _: threads.add(threading.get_ident()))

    flushed = [call.path.removeprefix(str(tmp_path)) for call in calls.trace if call.name in ("fsync", "fsync_dir")]
    assert threads == {threading.get_ident()}
    assert len(flushed) == len(set(flushed)) == 5  # the data, its manifest, their folder, and both folders of the move
    assert "" not in flushed  # the names in the root are those of the save before
    assert sum(call.name == "pwrite" for call in calls.trace) == 3


def test_the_names_in_a_root_are_flushed_again_when_they_changed(tmp_path):
    calls = FaultyCalls()
    mc.save(LocalStore(tmp_path, calls=calls), STATE, step=1)
    (tmp_path / "notes").mkdir()
    calls.trace.clear()

    mc.save(LocalStore(tmp_path, calls=calls), STATE, step=2)

    assert str(tmp_path) in [call.path for call in calls.trace if call.name == "fsync_dir"]
