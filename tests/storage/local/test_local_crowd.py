"""Many processes at once on one root: they save, replace, delete, bring back and recover beside each other."""

import contextlib

import pytest
from tests.ground.crowds import in_children
from tests.storage.local.test_local_recovery import leave_dead_attempt

from model_checkpoint.errors import CheckpointException
from model_checkpoint.options import Graces
from model_checkpoint.storage import LocalStore
from model_checkpoint.testing.blobs import AT_ONCE, load_blobs, save_blobs


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def test_many_processes_save_different_steps_of_one_root_while_others_recover(root):
    def work(number):
        store = LocalStore(root)
        for turn in range(5):
            name = f"step-{number}{turn}"
            save_blobs(store, name, {f"x-{name}": name.encode() * 2000}, attempt=f"a-{name}")
            store.sweep(AT_ONCE)

    codes = in_children(12, work)

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

    codes = in_children(8, work)

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

    codes = in_children(8, lambda number: LocalStore(root).sweep(AT_ONCE))

    assert codes == [0] * 8
    assert list((root / ".staging").iterdir()) == []
    assert list((root / ".trash").iterdir()) == []
