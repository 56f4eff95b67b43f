"""Recovery: what it may touch, when, and that any number of processes may run it beside live saves."""

import contextlib
import json
import os
import signal
import time

import pytest

from model_checkpoint.errors import CheckpointException
from model_checkpoint.options import Graces
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing import Fault, Kind, run_in_child
from model_checkpoint.testing.blobs import blob_manifest, load_blobs, save_blobs, stage_blobs

AT_ONCE = Graces(local=0.0, foreign=0.0, trash=0.0)


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
    lock = leave_dead_attempt(root)

    early = LocalStore(root).sweep(Graces(local=60.0))
    age(lock, 61)
    late = LocalStore(root).sweep(Graces(local=60.0))

    assert list(early.alive) == ["a1"]
    assert list(late.attempts) == ["a1"]
    assert late.nbytes == 3
    assert list((root / ".staging").iterdir()) == []


@pytest.mark.parametrize("field", ["host", "boot"])
def test_an_attempt_of_another_host_or_boot_waits_for_the_foreign_grace(root, field):
    lock = leave_dead_attempt(root)
    lock.write_text(json.dumps(json.loads(lock.read_text()) | {field: "elsewhere"}))
    age(lock, 3600)

    early = LocalStore(root).sweep(Graces())
    age(lock, 25 * 3600)
    late = LocalStore(root).sweep(Graces())

    assert list(early.alive) == ["a1"]
    assert list(late.attempts) == ["a1"]


def test_the_lock_says_who_holds_it(root):
    stage = LocalStore(root).stage("step-1", "a1")

    owner = json.loads((root / ".staging/a1.lock").read_text())

    assert owner["pid"] == os.getpid()
    assert owner["host"] == os.uname().nodename
    assert owner["boot"]
    assert abs(owner["started"] - time.time()) < 60
    assert owner["name"] == "step-1"
    stage.abort()


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
    old = store.sweep(Graces(local=0.0, foreign=3600.0))

    assert "this file system has no locks; recovery goes by the file's time" in caplog.text
    assert list(young.alive) == ["a1"]
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


def run_many(count, work):
    """``work(number)`` in ``count`` processes at once; every one must succeed."""
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(number)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_many_processes_save_different_steps_of_one_root_while_others_recover(root):
    def work(number):
        store = LocalStore(root)
        for turn in range(5):
            name = f"step-{number}{turn}"
            save_blobs(store, name, {f"x-{name}": name.encode() * 2000}, attempt=f"a-{name}")
            store.sweep(AT_ONCE)

    codes = run_many(12, work)

    store = LocalStore(root)
    assert codes == [0] * 12
    assert sorted(store.names()) == sorted(f"step-{n}{t}" for n in range(12) for t in range(5))
    for name in store.names():
        assert load_blobs(store, name) == {f"x-{name}": name.encode() * 2000}
    store.sweep(AT_ONCE)
    assert list((root / ".staging").iterdir()) == []


def test_many_processes_replace_delete_and_bring_back_one_name_and_what_is_left_is_whole(root):
    save_blobs(LocalStore(root), "step-1", {"x-a": b"first"}, attempt="a")

    def work(number):
        store = LocalStore(root)
        for turn in range(6):
            attempt = f"n{number}t{turn}"
            with contextlib.suppress(CheckpointException):  # another process may win any of these
                save_blobs(store, "step-1", {f"x-{attempt}": attempt.encode()}, attempt=attempt, replace=True)
            with contextlib.suppress(CheckpointException):
                if turn % 2:
                    store.bring_back(store.discard("step-1").token)
            store.sweep(Graces(local=0.0))

    codes = run_many(8, work)

    store = LocalStore(root)
    store.sweep(Graces(local=0.0))
    assert codes == [0] * 8
    for item in store.trash():
        with contextlib.suppress(CheckpointException):
            store.bring_back(item.token)
    ((file, data),) = load_blobs(store, "step-1").items()
    assert file == "x-" + data.decode() or (file, data) == ("x-a", b"first")
    assert list((root / ".staging").iterdir()) == []


def test_many_recoveries_at_once_share_the_work(root):
    for number in range(20):
        leave_dead_attempt(root, f"a{number}")
        save_blobs(LocalStore(root), f"step-{number}", {"x": b"abc"})
        LocalStore(root).discard(f"step-{number}")

    codes = run_many(8, lambda number: LocalStore(root).sweep(AT_ONCE))

    assert codes == [0] * 8
    assert list((root / ".staging").iterdir()) == []
    assert list((root / ".trash").iterdir()) == []


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
