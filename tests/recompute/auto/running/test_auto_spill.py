"""Spill files of an offload: checked when they come back, deleted by the process that made them."""

import atexit
import copy
import errno
import gc
import os
import tempfile
import threading

import pytest
import torch
from tests.ground.crowds import in_child
from tests.ground.stored.stored_files import flip
from tests.recompute.auto.auto_models import Held, assert_same_step, kept, mlp, runtime_of, spill_files, step

from model_checkpoint.errors import StorageFailure
from model_checkpoint.recompute.auto.saving.offload import Offloader
from model_checkpoint.recompute.errors import SpillDamaged


def empty(folder):
    for file in spill_files(folder):
        file.unlink()


def test_a_spill_file_that_cannot_be_written_is_an_error_that_names_the_layer(tmp_path):
    model, x = mlp(16, 4), torch.randn(8, 16)
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(4, "disk"))
        with Held(runtime, model, x):
            model[2].register_forward_pre_hook(lambda *_: empty(tmp_path))
            with pytest.raises(
                StorageFailure, match=r"^1: .*\.spill: \d+ bytes cannot be written: .*Free room"
            ) as caught:
                model(x)

    assert caught.value.errno == errno.ENOENT
    assert caught.value.checkpoint_path.endswith(".spill")


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    "changed byte": (
        lambda path: flip(path, path.stat().st_size // 2),
        SpillDamaged,
        "does not read back as written: bytes .* have digest .*",
    ),
    "cut": (lambda path: os.truncate(path, 10), SpillDamaged, r"has 10 bytes, expected \d+"),
    "gone": (lambda path: path.unlink(), SpillDamaged, r"is gone, expected \d+ bytes"),
    "unreadable": (replace_by_folder, StorageFailure, "could not be read: .*Is a directory"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_does_not_read_back_as_written_is_an_error_that_names_the_layer(damage, tmp_path):
    """Wrong gradients in silence are the worst that can happen."""
    change, kind, what = DAMAGES[damage]
    model, x = mlp(16, 4), torch.randn(8, 16)
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(4, "disk"))
        loss = model(x).sum()
        for file in spill_files(tmp_path):
            change(file)

        for _ in range(2):  # a second try must not take the buffer that was not filled
            with pytest.raises(kind, match=rf"^3: .*\.spill: the spill file {what}.*Compute the activation again"):
                loss.backward(retain_graph=True)


def test_a_spill_folder_that_cannot_be_made_is_a_storage_failure(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    model, x = mlp(16, 4), torch.randn(8, 16)
    with runtime_of(model, offloader=Offloader(tmp_path / "file")) as runtime:
        runtime.use(kept(4, "disk"))
        with pytest.raises(StorageFailure, match=r"file: a spill folder cannot be made in it: .*Give another folder"):
            model(x)


def and_end(work):
    """Do ``work``, and end as programs end."""
    work()
    gc.collect()
    atexit._run_exitfuncs()


@pytest.mark.parametrize("given", [False, True])
def test_the_end_of_a_forked_child_leaves_its_parents_files_alone(given, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    torch.manual_seed(0)
    model, x = mlp(16, 4), torch.randn(8, 16)
    expected = step(copy.deepcopy(model), (x,))
    with runtime_of(model, offloader=Offloader(tmp_path / "spill" if given else None)) as runtime:
        runtime.use(kept(4, "disk"))
        held = {"loss": model(x).pow(2).mean()}
        files = spill_files(tmp_path)

        assert in_child(and_end, held.clear) == 0

        assert spill_files(tmp_path) == files != []
        held["loss"].backward()

    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected[1], strict=True))


def test_a_forked_child_reads_what_is_written_and_trains_on_with_files_of_its_own(tmp_path):
    torch.manual_seed(0)
    model, x = mlp(16, 4), torch.randn(8, 16)
    twin = copy.deepcopy(model)
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(4, "disk"))
        loss = model(x).pow(2).mean()
        mine = spill_files(tmp_path)

        def child():
            loss.backward()
            output = model(x)
            assert len(spill_files(tmp_path)) == 8
            del output
            assert_same_step(step(model, (x,)), step(twin, (x,)))
            assert spill_files(tmp_path) == mine

        assert in_child(and_end, child) == 0
        loss.backward()


def test_a_forked_child_does_not_wait_for_its_parents_worker(tmp_path):
    """What the parent's worker had begun when it forked is refused by name, not waited for."""
    model, x = mlp(16, 4), torch.randn(8, 16)
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(kept(4, "disk"))
        model(x)
        group = runtime.resources.offloader.new_group("layer", "disk", runtime.resources.new_run())
        begun, gate = threading.Event(), threading.Event()
        send, group.send = group.send, lambda storage: (begun.set(), gate.wait(60), send(storage))
        number = group.put(torch.ones(4))
        assert begun.wait(60)

        def child():
            group.send = send
            with pytest.raises(StorageFailure, match=r"^layer: .*belongs to process \d+, this is its child"):
                group.read(number)

        assert in_child(and_end, child) == 0
        gate.set()
        group.share(number)
        assert torch.equal(group.read(number).view(torch.float32), torch.ones(4))
