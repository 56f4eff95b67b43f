"""Which checkpoint is newest does not hang on a wall clock that somebody set."""

import shutil
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.engine.writing.opaque_save import save_opaque
from model_checkpoint.manifest import decode, encode
from model_checkpoint.plan import step_name
from model_checkpoint.storage import LocalStore, open_store
from model_checkpoint.testing import FaultyCalls

HOUR = 3600


@pytest.fixture
def set_clock(monkeypatch):
    """Sets the wall clock so many seconds ahead of what it is, or behind."""
    real = time.time_ns

    def set_by(seconds):
        monkeypatch.setattr(time, "time_ns", lambda: real() + int(seconds * 1e9))

    return set_by


@pytest.fixture(params=["disk", "memory"])
def root(request, tmp_path):
    return tmp_path / "run" if request.param == "disk" else f"memory://commit-time-{uuid.uuid4().hex}"


def leave(root, name, *, step, created):
    """A checkpoint as a process on another machine left it."""
    template = f"memory://commit-time-{uuid.uuid4().hex}"
    mc.save(template, {"from": "another machine"}, name="any")
    manifest = decode(open_store(template).read_manifest("any"), "here")
    changed = msgspec.structs.replace(manifest, name=name, step=step, created=created)
    open_store(root).stage(name, uuid.uuid4().hex).publish(encode(changed))


def ahead(**by):
    return (datetime.now(UTC) + timedelta(**by)).isoformat(timespec="microseconds")


def test_of_two_saves_without_a_step_the_second_is_newest_though_the_clock_was_set_back(root, set_clock):
    first = mc.save(root, {"n": 1})
    set_clock(-HOUR)
    second = mc.save(root, {"n": 2})
    third = mc.save(root, {"n": 3})

    assert mc.load(root) == {"n": 3}
    assert [info.id for info in mc.list_checkpoints(root)] == [third.id, second.id, first.id]
    assert second.timestamp - first.timestamp < timedelta(seconds=1)


def test_of_two_names_of_one_step_the_second_is_newest_though_the_clock_was_set_back(root, set_clock):
    mc.save(root, {"from": "step"}, step=5)
    set_clock(-HOUR)
    mc.save(root, {"from": "name"}, step=5, name="final")

    assert mc.load(root) == {"from": "name"}


def test_a_clock_that_runs_rightly_tells_the_time(root):
    before = datetime.now(UTC)
    info = mc.save(root, {"n": 1})

    assert before - timedelta(milliseconds=1) <= info.timestamp <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("left", "saved"),
    [
        ({"name": "theirs", "step": None}, {}),
        ({"name": "theirs", "step": None}, {"name": "ours"}),
        ({"name": "theirs", "step": 5}, {"step": 5}),
        ({"name": "theirs", "step": 5}, {"step": 5, "name": "ours"}),
        ({"name": step_name(5), "step": 5}, {"step": 5, "name": "ours"}),
    ],
    ids=["unnamed", "named", "step after name", "names of a step", "name after step"],
)
def test_what_a_machine_with_its_clock_ahead_left_is_older_than_what_is_saved_after_it(root, left, saved):
    leave(root, created=ahead(days=30), **left)

    mc.save(root, {"from": "here"}, **saved)

    assert mc.load(root) == {"from": "here"}


def test_a_process_that_has_saved_before_looks_at_the_folder_of_the_step_it_names_otherwise(root):
    mc.save(root, {"n": 1}, step=1)
    leave(root, step_name(5), step=5, created=ahead(days=30))

    mc.save(root, {"from": "here"}, step=5, name="ours")

    assert mc.load(root) == {"from": "here"}


def test_an_incremental_save_builds_on_the_second_of_two_though_the_clock_was_set_back(tmp_path, set_clock):
    mc.save(tmp_path, {"w": np.arange(9.0)})
    set_clock(-HOUR)
    second = mc.save(tmp_path, {"w": np.ones(9)})

    third = mc.save(tmp_path, {"w": np.ones(9)}, incremental=True)

    manifest = decode(open_store(tmp_path).read_manifest(third.prefix), "here")
    assert manifest.parents == (second.id,)


@pytest.mark.parametrize("format", ["multi_shard", "single_file"])
def test_many_ranks_go_by_the_same_time(tmp_path, set_clock, format):
    def save(n):
        all_well(on_ranks(2, lambda c: mc.save(tmp_path, {"n": n}, format=format, coordinator=c)))

    save(1)
    set_clock(-HOUR)
    save(2)

    assert mc.load(tmp_path) == {"n": 2}


def test_files_of_a_backend_go_by_the_same_time(tmp_path, set_clock):
    def save():
        return save_opaque(tmp_path, lambda path: Path(path).write_bytes(b"x"), backend="mine")

    first = save()
    set_clock(-HOUR)
    second = save()

    assert [info.id for info in mc.list_checkpoints(tmp_path)] == [second.id, first.id]


@pytest.mark.parametrize("created", ["9999-12-31T23:59:59.999999+00:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_at_the_end_of_the_calendar_is_in_nobody_s_way(tmp_path, created):
    leave(tmp_path, "theirs", step=None, created=created)

    info = mc.save(tmp_path, {"n": 1}, name="ours")

    assert mc.load(tmp_path, name="ours") == {"n": 1}
    assert info.timestamp.year in (9999, datetime.now(UTC).year)


def test_only_the_first_of_ordinary_saves_looks_at_what_lies_in_the_root(tmp_path):
    mc.save(tmp_path / "a", {"n": 1}, name="best", step=1)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    calls = FaultyCalls()
    seen = []
    for step in (2, 3):
        calls.trace.clear()
        mc.save(LocalStore(tmp_path / "b", calls=calls), {"n": step}, step=step)
        seen.append([call.path for call in calls.trace if call.name == "listdir" and call.path.endswith("checkpoints")])

    assert seen[0]
    assert not seen[1]


class NoListing(FaultyCalls):
    """A system that does not tell what lies in the folder of the checkpoints."""

    def listdir(self, path):
        if path.endswith("checkpoints"):
            raise OSError(5, "no listing today")
        return super().listdir(path)


def test_a_root_that_cannot_be_listed_costs_no_save(tmp_path, caplog):
    mc.save(LocalStore(tmp_path, calls=NoListing()), {"n": 1}, step=1)

    assert mc.load(tmp_path) == {"n": 1}
    assert "its time is that of the clock alone" in caplog.text
