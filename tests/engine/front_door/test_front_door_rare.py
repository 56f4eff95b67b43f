"""What happens seldom: folders renamed or copied by hand, checkpoints replaced under a load, damage beside the data."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import model_checkpoint as mc
from model_checkpoint import CheckpointFormat, errors
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls


def damage(info, pattern="*.safetensors"):
    path = next(Path(info.path).glob(pattern))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


def test_a_folder_renamed_or_copied_by_hand_is_still_a_checkpoint(tmp_path):
    info = mc.save(tmp_path, {"w": np.arange(5)}, step=1)
    copy = tmp_path / "checkpoints/kept"
    shutil.copytree(info.path, copy)
    mc.delete(tmp_path, name=info.prefix)

    found = mc.list_checkpoints(tmp_path)

    assert [(one.prefix, one.path, one.step) for one in found] == [("kept", str(copy), 1)]
    assert np.array_equal(mc.load(tmp_path, name="kept")["w"], np.arange(5))
    assert mc.load_slice(tmp_path, "w", 3) == 3
    assert mc.verify(tmp_path)[0].ok
    assert mc.describe(copy).info == found[0]
    assert mc.diff(copy, copy).unchanged == 1


def test_a_copied_folder_is_checked_by_its_own_files(tmp_path):
    info = mc.save(tmp_path, {"w": np.arange(5)}, step=1)
    shutil.copytree(info.path, tmp_path / "checkpoints/copy")
    damage(info)

    by_name = {health.info.prefix: health.ok for health in mc.verify(tmp_path)}

    assert by_name == {"step-00000001": False, "copy": True}
    assert mc.load(tmp_path, name="copy")["w"].sum() == 10
    with pytest.raises(errors.ChunkMismatch, match="step-00000001"):
        mc.load(tmp_path, name="step-00000001")


def test_damage_of_the_index_of_a_consolidated_model_is_found(tmp_path):
    state = {"model": {"w": np.ones(3)}}
    info = mc.save(tmp_path, state, step=1, format=CheckpointFormat.CONSOLIDATED)
    damage(info, "*.index.json")
    other = mc.save(tmp_path, state, step=2, format=CheckpointFormat.CONSOLIDATED)
    next(Path(other.path).glob("*.index.json")).unlink()

    second, first = mc.verify(tmp_path)

    assert [one.file for one in first.damage] == ["model.safetensors.index.json"]
    assert "is gone" in second.damage[0].problem


def test_a_damaged_map_is_refused_unless_nobody_asks(tmp_path):
    damage(mc.save(tmp_path, {"w": np.ones(4096)}, step=1))

    with pytest.raises(errors.ChunkMismatch, match="which holds tensor w"):
        mc.load(tmp_path, mmap=True)
    assert mc.load(tmp_path, mmap=True, verify="off")["w"].shape == (4096,)


def test_a_load_whose_checkpoint_is_replaced_meanwhile_gives_the_new_one(tmp_path, caplog):
    mc.save(tmp_path, {"w": np.zeros(5)}, step=1)
    from model_checkpoint.storage.local.store import LocalStore

    class Raced(LocalStore):
        """Lets another save replace the checkpoint between its manifest and its files."""

        def open(self, name, file):
            if not caplog.records:
                mc.save(tmp_path, {"w": np.ones(5)}, step=1, overwrite=True)
            return super().open(name, file)

    with caplog.at_level("WARNING", logger="model_checkpoint"):
        state = mc.load(Raced(tmp_path))

    assert np.array_equal(state["w"], np.ones(5))
    assert "was overwritten during the load, reading the new one" in caplog.text


def test_views_that_are_stored_apart_are_told(tmp_path, caplog):
    base = np.zeros(100_000)

    info = mc.save(tmp_path, {"even": base[::1000], "odd": base[500::1000]}, step=1)

    assert "these views share memory but are stored apart: even, odd" in caplog.text
    assert info.size_bytes < 10_000
    assert mc.describe(info).unshared == ("even", "odd")


def test_disjoint_views_of_one_storage_come_back_each_with_memory_of_its_own(tmp_path):
    fused = torch.arange(12.0)
    left, right = fused.chunk(2)

    info = mc.save(tmp_path, {"left": left, "right": right}, step=1)
    back = mc.load(tmp_path)

    assert torch.equal(torch.cat([back["left"], back["right"]]), fused)
    assert back["left"].untyped_storage().nbytes() == left.nbytes
    assert [tensor.name for tensor in mc.describe(info).tensors] == ["left", "right"]


def test_progress_counts_every_byte_of_every_operation(tmp_path):
    told = []
    state = {"w": np.zeros(3 << 20)}

    info = mc.save(tmp_path, state, step=1, progress=told.append)
    mc.load(tmp_path, progress=told.append)
    mc.verify(tmp_path, progress=told.append)

    last = {step.operation: step for step in told}
    assert set(last) == {"save", "load", "verify"}
    assert all(step.done == step.total for step in last.values())
    assert last["verify"].total == info.size_bytes
    assert all(step.rate >= 0 for step in told)


class Cutting(Syscalls):
    """Cuts a file to half the moment it is mapped, as another process might."""

    def mmap(self, fd, size):
        view = super().mmap(fd, size)
        os.truncate(f"/proc/self/fd/{fd}", size // 2)
        return view


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to find the file of a descriptor")
def test_a_file_that_shrinks_under_its_map_is_truncated_and_kills_nobody(tmp_path):
    mc.save(tmp_path, {"w": np.arange(3_000_000, dtype=np.float64)}, step=1)

    with pytest.raises(errors.Truncated, match=r"safetensors ends at byte \d+, expected bytes"):
        mc.load(LocalStore(tmp_path, calls=Cutting()), mmap=True)


def test_a_notebook_shows_the_step_of_a_checkpoint_or_a_dash(tmp_path):
    root = f"memory://{tmp_path.name}"

    assert ">7</td>" in mc.save(root, {"epoch": 1}, step=7)._repr_html_()
    assert ">-</td>" in mc.save(root, {"epoch": 1}, name="loose")._repr_html_()
