"""Recovery: what it may touch, when, and that any number of processes may run it beside live saves."""

import contextlib
import json
import os
import signal
import time

import msgspec
import pytest
from tests.ground.clocks import Later

from model_checkpoint.errors import CheckpointException
from model_checkpoint.options import Graces
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.local.locks import AttemptLock, Owner
from model_checkpoint.storage.local.paths import RootPaths
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing import Fault, Kind, run_in_child
from model_checkpoint.testing.blobs import AT_ONCE, blob_manifest, load_blobs, save_blobs, stage_blobs


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def leave_dead_attempt(root, attempt="a1"):
    """A process that dies with its files sealed, unpublished."""

    def work(calls):
        stage_blobs(LocalStore(root, calls=calls), "step-1", {f"x-{attempt}": b"abc"}, attempt=attempt)
        os._exit(137)

    run_in_child(work)
    return root / f".staging/{attempt}.lock"


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_dead_attempt_of_this_host_is_removed_after_the_local_grace(root):
    leave_dead_attempt(root)

    early = LocalStore(root).sweep(Graces(local=60.0))
    late = LocalStore(root, calls=Later(61)).sweep(Graces(local=60.0))

    assert list(early.alive) == ["a1"]
    assert list(late.attempts) == ["a1"]
    assert late.nbytes == 3
    assert list((root / ".staging").iterdir()) == []


def test_a_dry_run_tells_of_a_dead_attempt_and_leaves_it(root):
    leave_dead_attempt(root)
    before = sorted((root / ".staging").rglob("*"))

    seen = LocalStore(root, calls=Later(61)).sweep(Graces(local=60.0), dry_run=True)

    assert (list(seen.attempts), seen.nbytes) == (["a1"], 3)
    assert sorted((root / ".staging").rglob("*")) == before


@pytest.mark.parametrize("field", ["host", "boot"])
def test_an_attempt_of_another_host_or_boot_waits_for_the_foreign_grace(root, field):
    lock = leave_dead_attempt(root)
    lock.write_text(json.dumps(json.loads(lock.read_text()) | {field: "elsewhere"}))
    age(lock, 3600)

    early = LocalStore(root, calls=Later(3600)).sweep(Graces())
    age(lock, 25 * 3600)
    late = LocalStore(root, calls=Later(25 * 3600)).sweep(Graces())

    assert list(early.alive) == ["a1"]
    assert list(late.attempts) == ["a1"]


def test_the_lock_says_who_holds_it(root):
    stage = LocalStore(root).stage("step-1", "a1")

    owner = json.loads((root / ".staging/a1.lock").read_text())

    assert owner["pid"] == os.getpid()
    assert owner["host"] == os.uname().nodename
    assert owner["boot"]
    assert 0 <= Syscalls().now().since(owner["boot"], owner["started"]) < 60
    assert owner["name"] == "step-1"
    stage.abort()


@pytest.mark.parametrize("jump", [-3600.0, 3 * 24 * 3600.0], ids=["back", "ahead"])
def test_of_this_boot_only_the_clock_that_does_not_jump_counts(root, jump):
    lock = leave_dead_attempt(root)
    age(lock, -30 * 24 * 3600)  # stamped 30 days ahead

    early = LocalStore(root, calls=Later(50, wall=jump)).sweep(Graces(local=60.0))
    late = LocalStore(root, calls=Later(70, wall=jump)).sweep(Graces(local=60.0))

    assert list(early.alive) == ["a1"]
    assert list(late.attempts) == ["a1"]


@pytest.mark.parametrize("orphan", [False, True])
def test_the_grace_of_an_attempt_stamped_in_the_future_begins_when_it_is_found(root, orphan, caplog):
    lock = leave_dead_attempt(root)
    stamped = root / ".staging/a1" if orphan else lock
    if orphan:
        lock.unlink()
    else:
        lock.write_text(json.dumps(json.loads(lock.read_text()) | {"boot": "elsewhere"}))
    age(stamped, -30 * 24 * 3600)

    first = LocalStore(root).sweep(Graces(local=3600.0, foreign=3600.0))
    found = time.time() - stamped.stat().st_mtime
    age(stamped, 3601)
    second = LocalStore(root).sweep(Graces(local=3600.0, foreign=3600.0))

    assert list(first.alive) == ["a1"]
    assert 0 <= found < 60
    assert "seconds in the future; its grace begins now" in caplog.text
    assert list(second.attempts) == ["a1"]


def test_a_lock_of_an_older_release_with_a_wall_clock_is_judged_by_its_file(root):
    lock = leave_dead_attempt(root)
    lock.write_text(json.dumps(json.loads(lock.read_text()) | {"started": time.time()}))

    early = LocalStore(root).sweep(Graces(local=60.0))
    age(lock, 61)
    late = LocalStore(root).sweep(Graces(local=60.0))

    assert list(early.alive) == ["a1"]
    assert list(late.attempts) == ["a1"]


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("/etc/passwd"), lambda p: p.mkdir()], ids=["link", "folder"])
def test_what_is_no_file_where_a_lock_should_be_does_not_stop_recovery(root, make, caplog):
    leave_dead_attempt(root, "b1")
    make(root / ".staging/a1.lock")

    swept = LocalStore(root).sweep(AT_ONCE)

    assert list(swept.attempts) == ["b1"]
    assert list(swept.alive) == ["a1"]
    assert "a1.lock: is no regular file, so no attempt of ours; left alone" in caplog.text
    assert [path.name for path in (root / ".staging").iterdir()] == ["a1.lock"]


def test_a_second_shorter_note_of_what_will_be_replaced_can_be_read(root):
    """Else the strays of an attempt that died after it are never found."""
    LocalStore(root).stage("step-0", "a0").abort()
    lock = AttemptLock(RootPaths(str(root), Syscalls()), "a1", "step-1")

    lock.note_obsolete(tuple(f"file-{number}" for number in range(50)))
    lock.note_obsolete(("x",))

    owner = msgspec.json.decode((root / ".staging/a1.lock").read_bytes(), type=Owner)
    assert owner.obsolete == ("x",)
    lock.release()


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_lock_that_says_nothing_on_a_disk_of_our_own_is_local(root, text):
    lock = leave_dead_attempt(root)
    lock.write_text(text)

    assert list(LocalStore(root).sweep(Graces(local=0.0)).attempts) == ["a1"]
    assert list((root / ".staging").iterdir()) == []


def test_a_stage_that_lost_its_lock_file_is_removed_after_the_grace(root):
    leave_dead_attempt(root).unlink()

    early = LocalStore(root).sweep(Graces(local=60.0))
    age(root / ".staging/a1", 61)
    late = LocalStore(root).sweep(Graces(local=60.0))

    assert list(early.alive) == ["a1"]
    assert list(late.attempts) == ["a1"]


class OnNetwork(Syscalls):
    """A network file system without locks."""

    def flock(self, fd, operation):
        raise OSError(95, "no locks")

    def filesystem(self, fd):
        return 0x6969


def test_without_locks_recovery_goes_by_the_time_of_the_lock_file(root, caplog):
    store = LocalStore(root, calls=OnNetwork())
    stage = stage_blobs(store, "step-1", {"x": b"abc"}, attempt="a1")

    young = store.sweep(Graces(local=0.0, foreign=3600.0))
    age(root / ".staging/a1.lock", 3601)
    too_young = store.sweep(Graces(local=0.0, foreign=3600.0))
    later = OnNetwork()
    later.now = Later(3601).now
    old = LocalStore(root, calls=later).sweep(Graces(local=0.0, foreign=3600.0))

    assert "this file system has no locks; recovery goes by the file's time" in caplog.text
    assert list(young.alive) == ["a1"]
    assert list(too_young.alive) == ["a1"]  # it cannot have been silent for longer than it exists
    assert list(old.attempts) == ["a1"]
    with pytest.raises(CheckpointException, match=r"No such file.*Something removed it meanwhile"):
        stage.publish(b"m")


def test_on_a_network_file_system_nothing_is_mapped(root):
    save_blobs(LocalStore(root), "step-1", {"x": b"abc"})

    assert LocalStore(root, calls=OnNetwork()).open("step-1", "x").map() is None


def test_the_time_of_the_lock_is_refreshed_while_bytes_flow(root, monkeypatch):
    stage = LocalStore(root, direct=False).stage("step-1", "a1")
    writer = stage.create("x", 2)
    age(root / ".staging/a1.lock", 3600)
    clock = time.monotonic

    writer.write(0, memoryview(b"a"))
    before = (root / ".staging/a1.lock").stat().st_mtime
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 11)
    writer.write(1, memoryview(b"b"))
    after = (root / ".staging/a1.lock").stat().st_mtime

    assert time.time() - before > 3000
    assert time.time() - after < 60


def test_files_nobody_listed_stay_in_a_checkpoint(root):
    """Only what bears the dead attempt's id is a stray."""
    store = LocalStore(root)
    save_blobs(store, "step-1", {"x-a1": b"old"}, attempt="a1")
    (root / "checkpoints/step-1/notes.txt").write_text("mine")
    run_in_child(replace_step_1(root), Fault(kind=Kind.KILL_BEFORE, at=switch_of(root)))
    assert (root / "checkpoints/step-1/x-a2").exists()

    swept = store.sweep(Graces(local=0.0))

    assert list(swept.attempts) == ["a2"]
    assert set(store.files("step-1")) == {"x-a1", "notes.txt", "manifest.json"}
    assert load_blobs(store, "step-1") == {"x-a1": b"old"}


@pytest.mark.parametrize("new", [{"x-a2": b"new"}, {}], ids=["with files", "without"])
def test_behind_the_switch_recovery_retires_what_was_replaced_and_nothing_else(root, new):
    """Not what nobody listed, nor what the new manifest lists; also if the new version has no file of its own."""
    store = LocalStore(root)
    old = {"x-a1": b"old", "kept-a1": b"kept"}
    save_blobs(store, "step-1", old, attempt="a1")
    (root / "checkpoints/step-1/notes.txt").write_text("mine")

    def replacing(calls):
        stage = stage_blobs(LocalStore(root, calls=calls), "step-1", new, attempt="a2")
        manifest = blob_manifest("step-1", "a2", new | {"kept-a1": b"kept"})
        stage.publish(manifest, replace=True, obsolete=list(old))

    switch = 0
    while '"a2"' not in (root / "checkpoints/step-1/manifest.json").read_text():
        LocalStore(root).sweep(Graces(local=0.0))
        switch += 1
        run_in_child(replacing, Fault(kind=Kind.KILL_AFTER, at=switch))

    swept = store.sweep(Graces(local=0.0))

    assert list(swept.attempts) == ["a2"]
    assert load_blobs(store, "step-1") == new | {"kept-a1": b"kept"}
    assert set(store.files("step-1")) == {*new, "kept-a1", "notes.txt", "manifest.json"}
    assert [path.name for path in (root / ".trash").glob("*/*")] == ["x-a1"]


def test_beside_a_damaged_manifest_nothing_is_removed_until_it_is_replaced(root, caplog):
    store = LocalStore(root)
    save_blobs(store, "step-1", {"x-a1": b"old"}, attempt="a1")
    run_in_child(replace_step_1(root), Fault(kind=Kind.KILL_BEFORE, at=switch_of(root)))
    (root / "checkpoints/step-1/manifest.json").write_bytes(b"damaged")

    store.sweep(Graces(local=0.0))
    kept = set(store.files("step-1"))
    save_blobs(store, "step-1", {"x-a3": b"newest"}, attempt="a3", replace=True, obsolete=["x-a1"])
    store.sweep(Graces(local=0.0))

    assert {"x-a1", "x-a2"} <= kept
    assert "no usable manifest; nothing removed" in caplog.text
    assert set(store.files("step-1")) == {"x-a3", "manifest.json"}
    assert list((root / ".staging").iterdir()) == []


def replace_step_1(root):
    def work(calls):
        files = {"x-a2": b"new"}
        save_blobs(LocalStore(root, calls=calls), "step-1", files, attempt="a2", replace=True, obsolete=["x-a1"])

    return work


def switch_of(root):
    """The number of the call that switches the manifest, learnt on a copy."""
    copy = root.with_name("copy")
    save_blobs(LocalStore(copy), "step-1", {"x-a1": b"old"}, attempt="a1")
    trace = run_in_child(replace_step_1(copy)).trace
    return next(call.index for call in trace if call.name == "rename" and call.path == "manifest.a2.tmp")


@contextlib.contextmanager
def forked(work):
    """Another process that does ``work`` and then waits to be ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            os.write(writer, b"ready")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    try:
        assert os.read(reader, 5) == b"ready"
        yield child
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_live_save_of_another_process_is_never_touched_until_it_dies(root):
    def hold():
        hold.stage = stage_blobs(LocalStore(root), "step-1", {"x-a1": b"abc"}, attempt="a1")

    with forked(hold):
        age_everything(root, 30 * 24 * 3600)
        alive = LocalStore(root).sweep(AT_ONCE)
        staged = set(os.listdir(root / ".staging/a1"))
    dead = LocalStore(root).sweep(AT_ONCE)

    assert list(alive.alive) == ["a1"]
    assert staged == {"x-a1"}
    assert list(dead.attempts) == ["a1"]


def age_everything(root, seconds):
    for path in (root / ".staging").rglob("*"):
        age(path, seconds)


def test_an_attempt_that_was_published_but_died_before_it_could_tidy_up_stays_published(root):
    store = LocalStore(root)
    stage = stage_blobs(store, "step-1", {"x-a1": b"abc"}, attempt="a1")
    manifest = blob_manifest("step-1", "a1", {"x-a1": b"abc"})
    stage.publish(manifest)
    leave_dead_attempt(root, "a1")
    assert (root / ".staging/a1.lock").exists()

    store.sweep(AT_ONCE)

    assert load_blobs(store, "step-1") == {"x-a1": b"abc"}
    assert list((root / ".staging").iterdir()) == []
