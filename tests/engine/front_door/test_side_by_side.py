"""What another process does to a checkpoint meanwhile is told as what it is, and both get their way."""

import os
import shutil

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.errors import CheckpointWarning, StepExists, Truncated, WrongReference
from model_checkpoint.options import CheckpointFormat
from model_checkpoint.storage import InMemoryStore, LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing.blobs import AT_ONCE, load_blobs, save_blobs

STEP = "step-00000001"


class Meanwhile(Syscalls):
    """The system, with another process that acts just before the chosen call whose last path ends so."""

    def __init__(self, call, end, act, *, time=1):
        super().__init__()
        original, self.waiting = getattr(self, call), time

        def acting(*args, **kwargs):
            if str([arg for arg in args if isinstance(arg, str)][-1]).endswith(end):
                self.waiting -= 1
                if not self.waiting:
                    act()
            return original(*args, **kwargs)

        setattr(self, call, acting)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def save_while(root, act, state, **options):
    """Save, with ``act`` done by somebody else when everything is staged."""
    calls = Meanwhile("rename", f"checkpoints/{STEP}", act)
    mc.save(LocalStore(root, calls=calls), state, step=1, **options)
    assert calls.waiting <= 0


def test_two_processes_that_overwrite_one_new_step_both_succeed(root):
    first, second = ({"by": by, "data": by.encode() * 999} for by in ("first", "second"))

    save_while(root, lambda: mc.save(root, first, step=1, overwrite=True), second, overwrite=True)

    assert mc.load(root) == second
    assert [health.ok for health in mc.verify(root)] == [True]
    assert len(list((root / "checkpoints" / STEP).iterdir())) == 2  # nothing of the first is left beside it


def test_without_overwrite_the_second_of_two_is_refused(root):
    with pytest.raises(StepExists, match=r"a checkpoint of that name exists.*overwrite=True"):
        save_while(root, lambda: mc.save(root, {"by": "first"}, step=1), {"by": "second"})

    assert mc.load(root) == {"by": "first"}


def test_a_consolidated_model_is_saved_with_overwrite_where_there_is_none(root):
    mc.save(root, {"model": {"w": np.zeros(3)}}, step=1, overwrite=True, format=CheckpointFormat.CONSOLIDATED)

    assert [info.step for info in mc.list_checkpoints(root)] == [1]


def test_files_of_a_replacement_under_way_are_not_taken_for_those_of_the_damaged_one(root):
    """Both find the checkpoint damaged and replace it; the first to finish must not throw away what the other needs."""
    mc.save(root, {"by": "nobody"}, step=1)
    (root / "checkpoints" / STEP / "manifest.json").write_bytes(b"damaged")

    def save_first():
        mc.save(root, {"by": b"first" * 999}, step=1, overwrite="damaged")

    # the second rename to that name is the switch: the new files have joined the folder
    other = Meanwhile("rename", "manifest.json", save_first, time=2)
    mc.save(LocalStore(root, calls=other), {"by": b"second" * 999}, step=1, overwrite="damaged")

    assert other.waiting == 0
    assert mc.load(root) == {"by": b"second" * 999}
    assert [health.ok for health in mc.verify(root)] == [True]


def test_who_tidies_up_what_it_replaced_takes_nothing_of_who_replaced_it_meanwhile(root):
    """The index of a consolidated model has one name in every version."""
    mc.save(root, {"model": {"w": np.zeros(3)}}, step=1, format=CheckpointFormat.CONSOLIDATED)

    def save_last():
        state = {"model": {"w": np.ones(3)}}
        mc.save(root, state, step=1, overwrite=True, format=CheckpointFormat.CONSOLIDATED)

    calls = Meanwhile("rename", "model.safetensors.index.json", save_last)  # to the trash: it is switched already
    mc.save(LocalStore(root, calls=calls), {"by": "second"}, step=1, overwrite=True)

    assert calls.waiting == 0
    assert np.array_equal(mc.load(root)["model"]["w"], np.ones(3))
    assert [health.ok for health in mc.verify(root)] == [True]


def test_recovery_takes_nothing_of_who_replaced_a_dead_attempt_meanwhile(root, tmp_path):
    mc.save(root, {"model": {"w": np.zeros(3)}}, step=1, format=CheckpointFormat.CONSOLIDATED)
    died = Meanwhile("rename", "model.safetensors.index.json", _die)
    with pytest.raises(KeyboardInterrupt, match="killed"):
        mc.save(LocalStore(root, calls=died), {"by": "second"}, step=1, overwrite=True)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)  # whose locks nobody holds

    def save_last():
        state = {"model": {"w": np.ones(3)}}
        mc.save(copy, state, step=1, overwrite=True, format=CheckpointFormat.CONSOLIDATED)

    calls = Meanwhile("rename", "model.safetensors.index.json", save_last)
    LocalStore(copy, calls=calls).sweep(AT_ONCE)

    assert calls.waiting == 0
    assert [health.ok for health in mc.verify(copy)] == [True]


def _die():
    raise KeyboardInterrupt("killed")


def test_undelete_tells_what_it_brought_back_even_if_it_is_deleted_again_at_once(root):
    info = mc.save(root, {"epoch": 3}, step=1)
    mc.delete(root, step=1)
    calls = Meanwhile("fsync_dir", "checkpoints", lambda: mc.delete(root, step=1))

    back = mc.undelete(LocalStore(root, calls=calls))

    assert (back.step, back.id) == (1, info.id)
    assert calls.waiting == 0
    assert mc.undelete(root).id == info.id


def while_verifying(root, act, step=1):
    """A store whose checkpoint meets ``act`` after its manifest was read twice, before its data file is opened."""
    return LocalStore(root, calls=Meanwhile("open", f"checkpoints/step-{step:08d}", act, time=3))


def test_a_checkpoint_deleted_while_it_is_verified_is_not_damaged(root):
    for step in (1, 2):
        mc.save(root, {"data": b"abc" * 9000, "step": step}, step=step)

    healths = mc.verify(while_verifying(root, lambda: mc.delete(root, step=2), step=2))

    assert [(health.info.step, health.ok) for health in healths] == [(1, True)]


def test_the_chosen_checkpoint_deleted_while_it_is_verified_is_not_found(root):
    mc.save(root, {"data": b"abc" * 9000}, step=1)

    with pytest.raises(WrongReference, match=r"step-00000001: was deleted while it was being verified"):
        mc.verify(while_verifying(root, lambda: mc.delete(root, step=1)), step=1)


def test_a_checkpoint_replaced_while_it_is_verified_is_verified_as_it_is_now(root):
    mc.save(root, {"data": b"abc" * 9000}, step=1)
    again = []

    def replace():
        again.append(mc.save(root, {"data": b"new" * 9000}, step=1, overwrite=True))

    (health,) = mc.verify(while_verifying(root, replace))

    assert health.ok
    assert health.info.id == again[0].id


def test_a_load_whose_checkpoint_is_deleted_says_so_and_falls_back(root):
    for step in (1, 2):
        mc.save(root, {"data": b"abc" * 9000, "step": step}, step=step)

    def deleting():
        return while_verifying(root, lambda: mc.delete(root, step=2), step=2)

    with pytest.raises(WrongReference, match=r"step-00000002: was deleted during the load"):
        mc.load(deleting())
    mc.undelete(root, step=2)
    with pytest.warns(CheckpointWarning, match=r"passed over: .*step-00000002: was deleted during the load"):
        assert mc.load(deleting(), fallback=True)["step"] == 1


def test_real_damage_is_still_told(root):
    mc.save(root, {"data": b"abc" * 9000}, step=1)
    (data,) = (root / "checkpoints" / STEP).glob("*.safetensors")
    os.truncate(data, 10)

    (health,) = mc.verify(root, step=1)

    assert not health.ok


# --- a file that is gone says why -------------------------------------------------------------------------------------


def test_a_missing_file_says_whether_it_was_deleted_replaced_or_is_damage(root):
    store = LocalStore(root)
    save_blobs(store, "step-1", {"x-a1": b"old"}, attempt="a1")
    save_blobs(store, "step-2", {"x-a1": b"old"}, attempt="a1")
    save_blobs(store, "step-3", {"x-a1": b"old"}, attempt="a1")

    store.discard("step-1")
    save_blobs(store, "step-2", {"x-a2": b"new"}, attempt="a2", replace=True, obsolete=["x-a1"])
    (root / "checkpoints/step-3/x-a1").unlink()

    with pytest.raises(
        Truncated, match=r"step-1: the file x-a1 is gone; the checkpoint was deleted meanwhile.*`mckpt restore`"
    ):
        store.open("step-1", "x-a1")
    with pytest.raises(Truncated, match=r"step-2: the file x-a1 is gone; the checkpoint was replaced meanwhile"):
        store.open("step-2", "x-a1")
    with pytest.raises(Truncated, match=r"step-3: the file x-a1 is gone; its manifest lists it, .* is damaged"):
        store.open("step-3", "x-a1")
    assert load_blobs(store, "step-2") == {"x-a2": b"new"}


def test_a_missing_file_in_memory_says_whether_it_was_deleted_or_replaced():
    store = InMemoryStore("memory://side-by-side")
    save_blobs(store, "step-1", {"x-a1": b"old"}, attempt="a1")

    with pytest.raises(Truncated, match=r"the file x-a0 is gone; the checkpoint was replaced meanwhile"):
        store.open("step-1", "x-a0")
    store.discard("step-1")
    with pytest.raises(Truncated, match=r"the file x-a1 is gone; the checkpoint was deleted meanwhile"):
        store.open("step-1", "x-a1")
