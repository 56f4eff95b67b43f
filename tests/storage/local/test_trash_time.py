"""How long a deletion stays, and in which order deletions come back, whatever the clocks say."""

import pytest
from tests.ground.clocks import Later

import model_checkpoint as mc
from model_checkpoint.options import Graces
from model_checkpoint.storage import LocalStore
from model_checkpoint.testing.blobs import load_blobs, save_blobs

DAY = 24 * 3600.0
ELSEWHERE = "ffffffff-0000-0000-0000-000000000000"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def delete_one(root, data=b"abc", *, calls=None):
    store = LocalStore(root) if calls is None else LocalStore(root, calls=calls)
    save_blobs(store, "step-1", {"x": data})
    return store.discard("step-1")


def purged(root, calls):
    return list(LocalStore(root, calls=calls).sweep(Graces()).trashed)


@pytest.mark.parametrize("boot", ["", ELSEWHERE], ids=["this machine", "another machine"])
def test_a_deletion_made_moments_ago_survives_recovery_under_a_clock_two_days_ahead(root, boot):
    """The other machine shares the file system, whose own clock has not moved."""
    gone = delete_one(root)

    assert purged(root, Later(0.0, wall=2 * DAY, boot=boot)) == []
    assert LocalStore(root).bring_back(gone.token) == "step-1"


def test_the_grace_ends_on_this_boot_even_if_the_clock_was_set_back(root):
    gone = delete_one(root)

    assert purged(root, Later(DAY - 60, wall=-30 * DAY)) == []
    assert purged(root, Later(DAY + 60, wall=-30 * DAY)) == [gone.token]


def test_after_a_restart_the_grace_ends_when_file_system_and_wall_clock_agree_on_it(root):
    gone = delete_one(root)

    assert purged(root, Later(0.0, boot=ELSEWHERE, medium=2 * DAY)) == []
    assert purged(root, Later(0.0, boot=ELSEWHERE, wall=2 * DAY)) == []
    assert purged(root, Later(0.0, boot=ELSEWHERE, wall=2 * DAY, medium=2 * DAY)) == [gone.token]


def test_a_deletion_by_a_machine_far_ahead_ends_by_the_clock_of_the_file_system(root):
    gone = delete_one(root, calls=Later(0.0, wall=30 * DAY))

    assert purged(root, Later(0.0, boot=ELSEWHERE)) == []
    assert purged(root, Later(0.0, boot=ELSEWHERE, medium=2 * DAY)) == [gone.token]


def test_the_grace_of_a_deletion_stamped_in_the_future_begins_when_it_is_found(root, caplog):
    """The clock was ahead when it was deleted, and was set right before the next boot."""
    gone = delete_one(root)
    right = {"boot": ELSEWHERE, "wall": -30 * DAY}

    assert purged(root, Later(0.0, medium=-30 * DAY, **right)) == []
    assert "seconds in the future; its grace begins now" in caplog.text
    assert [item.token for item in LocalStore(root).trash()] == [gone.token]


@pytest.mark.parametrize("set_back", [0.0, -3600.0, -400 * DAY])
def test_deletions_come_back_latest_first_whatever_the_clock_says(root, set_back):
    for number in range(3):
        save_one = Later(0.0, wall=number * set_back)
        delete_one(root, b"version %d" % number, calls=save_one)

    found = [item.token for item in LocalStore(root).trash()]

    back = LocalStore(root).bring_back(found[-1])
    assert load_blobs(LocalStore(root), back) == {"x": b"version 2"}
    assert [item.token for item in LocalStore(root).trash()] == found[:-1]


def test_undelete_brings_back_the_latest_deletion_after_the_clock_was_set_back(root):
    for epoch, calls in enumerate([Later(0.0), Later(0.0, wall=-3600.0)]):
        mc.save(root, {"epoch": epoch}, step=1)
        LocalStore(root, calls=calls).discard("step-00000001")

    mc.undelete(root, step=1)

    assert mc.load(root) == {"epoch": 1}


def test_what_an_older_release_deleted_can_be_read_brought_back_and_purged(root):
    """Its keys have no order and no boot: it counts as deleted before the others."""
    first = delete_one(root, b"first")
    old = "step-1~{}~00000000000000ff".format(first.token.split("~")[1])
    (root / ".trash" / first.token).rename(root / ".trash" / old)
    second = delete_one(root, b"second")
    store = LocalStore(root)

    assert [item.token for item in store.trash()] == [old, second.token]
    assert store.read_trashed(old)
    assert purged(root, Later(0.0, wall=2 * DAY)) == []
    assert store.bring_back(old) == "step-1"
    (root / "checkpoints/step-1").rename(root / ".trash" / old)
    assert purged(root, Later(0.0, wall=2 * DAY, medium=2 * DAY)) == [old]


def test_a_memory_store_ages_by_a_clock_that_does_not_jump(monkeypatch):
    import time

    from model_checkpoint.storage import InMemoryStore

    store = InMemoryStore("memory://trash-time")
    save_blobs(store, "step-1", {"x": b"one"})
    first = store.discard("step-1")
    clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() - int(3600e9))
    save_blobs(store, "step-1", {"x": b"two"})
    second = store.discard("step-1")
    monkeypatch.setattr(time, "time", lambda: clock() / 1e9 + 2 * DAY)

    assert [item.token for item in store.trash()] == [first.token, second.token]
    assert list(store.sweep(Graces()).trashed) == []
