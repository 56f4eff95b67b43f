"""An incremental save writes what changed and links what did not, if it is as it was recorded."""

import errno
import os
import shutil

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.writing.linked_files import MIB, inode_of, inodes, save, state
from tests.ground.stored.equal_values import same
from tests.ground.stored.stored_files import folder, manifest_of
from tests.storage.local.faults.failing_calls import FailingCalls

import model_checkpoint as mc
from model_checkpoint import CompressionLevel
from model_checkpoint.engine.writing.incremental import hash_contents
from model_checkpoint.errors import StorageFailure
from model_checkpoint.manifest import decode, encode
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.tree import flatten


def written(root, step):
    """Bytes of data files that no other name has."""
    return sum(p.stat().st_size for p in folder(root, step).glob("*.safetensors") if p.stat().st_nlink == 1)


def rewrite(root, step, **fields):
    """Change every file record of a manifest."""
    manifest = manifest_of(root, step)
    files = tuple(msgspec.structs.replace(record, **fields) for record in manifest.files)
    changed = encode(msgspec.structs.replace(manifest, files=files))
    (folder(root, step) / "manifest.json").write_bytes(changed)


# --- what is linked and what is written ------------------------------------------------------------------------------


def test_unchanged_tensors_move_to_files_of_their_own_and_are_linked_from_then_on(tmp_path):
    for step in range(1, 5):
        save(tmp_path, state(moving=step), step)

    assert inode_of(tmp_path, 1, "base") != inode_of(tmp_path, 2, "base")  # the first file held the head as well
    assert inode_of(tmp_path, 2, "base") == inode_of(tmp_path, 3, "base") == inode_of(tmp_path, 4, "base")
    assert written(tmp_path, 4) < 20_000
    for step in range(1, 5):
        assert same(mc.load(tmp_path, step=step, verify="full"), state(moving=step))


def test_frozen_parameters_have_files_of_their_own_from_the_first_save(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.Linear(1024, 8))
    model[0].requires_grad_(False)
    save(tmp_path, {"model": model}, 1)
    with torch.no_grad():
        model[1].weight += 1
    save(tmp_path, {"model": model}, 2)

    assert inode_of(tmp_path, 1, "model.0.weight") == inode_of(tmp_path, 2, "model.0.weight")
    assert inode_of(tmp_path, 1, "model.0.weight") != inode_of(tmp_path, 1, "model.1.weight")
    assert written(tmp_path, 2) < 0.1 * mc.list_checkpoints(tmp_path)[0].size_bytes
    assert torch.equal(mc.load(tmp_path)["model"]["1.weight"], model[1].weight)


def test_a_state_that_did_not_change_at_all_writes_no_data(tmp_path):
    save(tmp_path, state(), 1)
    save(tmp_path, state(), 2)

    assert inodes(tmp_path, 1) == inodes(tmp_path, 2)
    assert same(mc.load(tmp_path, step=2), state())


def test_files_are_cut_at_64_mib(tmp_path):
    info = save(tmp_path, {str(i): np.full(20 * MIB, i, np.uint8) for i in range(8)}, 1)

    sizes = [record.size for record in manifest_of(tmp_path, 1).files]
    assert info.size_bytes == sum(sizes)
    assert max(sizes) <= 64 * MIB + 4096
    assert len(sizes) == 3


def test_a_checkpoint_saved_in_full_can_be_built_on(tmp_path):
    mc.save(tmp_path, {"a": np.ones(MIB)}, step=1)
    save(tmp_path, {"a": np.ones(MIB)}, 2)

    assert inodes(tmp_path, 1) == inodes(tmp_path, 2)


def test_a_full_save_never_links(tmp_path):
    save(tmp_path, state(), 1)
    mc.save(tmp_path, state(), step=2)

    assert not inodes(tmp_path, 1) & inodes(tmp_path, 2)
    assert manifest_of(tmp_path, 2).parents == ()


@pytest.mark.parametrize(
    "other",
    [
        {"base": np.zeros(2 * MIB).reshape(2, -1)},
        {"base": np.zeros(2 * MIB, np.int64)},
        {"base": np.zeros(2 * MIB + 1)},
        {"renamed": np.zeros(2 * MIB)},
    ],
    ids=["shape", "dtype", "length", "name"],
)
def test_equal_bytes_of_another_shape_dtype_or_name_are_written(tmp_path, other):
    save(tmp_path, {"base": np.zeros(2 * MIB)}, 1)
    save(tmp_path, other, 2)

    assert not inodes(tmp_path, 1) & inodes(tmp_path, 2)
    assert same(mc.load(tmp_path, step=2), other)


def test_the_parent_is_recorded_when_something_was_linked(tmp_path):
    save(tmp_path, state(), 1)
    save(tmp_path, state(), 2)
    save(tmp_path, {"x": np.arange(9)}, 3)

    assert manifest_of(tmp_path, 2).parents == (manifest_of(tmp_path, 1).id,)
    assert manifest_of(tmp_path, 3).parents == ()


def test_a_save_tells_what_it_shares_as_the_list_does(tmp_path):
    infos = [save(tmp_path, state(moving=step), step) for step in (1, 2, 3, 4)]

    listed = {info.step: info for info in mc.list_checkpoints(tmp_path)}
    assert infos[0].shared_bytes == 0
    assert infos[3].shared_bytes == listed[4].shared_bytes > 20 * MIB
    assert infos[3].shared_with == listed[4].shared_with
    job = mc.save_async(tmp_path, state(moving=5), step=5, incremental=True)
    assert job.result().shared_bytes == infos[3].shared_bytes


def test_file_names_are_new_in_every_checkpoint(tmp_path):
    save(tmp_path, state(), 1)
    save(tmp_path, state(), 2)

    names = [p.name for step in (1, 2) for p in folder(tmp_path, step).glob("*.safetensors")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("size", [0, 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 9 * MIB])
def test_fingerprints_taken_before_a_save_are_those_it_records(size):
    array = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    root = f"memory://fingerprint-{size}"
    mc.save(root, {"x": array}, step=1, overwrite=True)
    from model_checkpoint.storage.locate import open_store

    recorded = decode(open_store(root).read_manifest("step-00000001"), "here").entries[0].digest

    assert hash_contents(dict(enumerate(flatten({"x": array}).leaves)), 4 * MIB) == {0: recorded}


def test_no_checkpoint_ever_holds_a_stale_tensor_whatever_changes(tmp_path):
    """Any mixture of changes, deletions and replacements: each step that is left gives its own state."""

    @given(data=st.data(), compressed=st.booleans())
    @settings(max_examples=15, deadline=None)
    def check(data, compressed):
        root = tmp_path / "root"
        shutil.rmtree(root, ignore_errors=True)
        level = CompressionLevel.FAST if compressed else CompressionLevel.NONE
        current = {name: np.zeros(data.draw(st.integers(0, 3000))) for name in "abcdef"}
        kept = {}
        for step in range(1, 7):
            for name in data.draw(st.sets(st.sampled_from("abcdef"))):
                current[name] = current[name] + step
            target = data.draw(st.integers(1, step))
            save(root, dict(current), target, overwrite=True, compression=level)
            kept[target] = dict(current)
            if len(kept) > 2 and data.draw(st.booleans()):
                gone = data.draw(st.sampled_from(sorted(kept)))
                shutil.rmtree(folder(root, gone))
                del kept[gone]
        for step, expected in kept.items():
            assert same(mc.load(root, step=step), expected)
        assert all(health.ok for health in mc.verify(root))

    check()


# --- when a file may be linked ---------------------------------------------------------------------------------------


def replace_by_copy(path):
    shutil.copy2(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").rename(path)


@pytest.mark.parametrize(
    "tamper",
    [lambda p: os.utime(p), replace_by_copy, lambda p: p.unlink(), lambda p: p.write_bytes(p.read_bytes()[:-1])],
    ids=["touched", "copied", "gone", "cut"],
)
def test_a_file_that_is_not_as_recorded_is_written_from_memory(tmp_path, tamper):
    save(tmp_path, {"base": np.zeros(MIB)}, 1)
    tamper(next(folder(tmp_path, 1).glob("*.safetensors")))
    save(tmp_path, {"base": np.zeros(MIB)}, 2)

    assert not inodes(tmp_path, 1) & inodes(tmp_path, 2)
    assert same(mc.load(tmp_path, step=2), {"base": np.zeros(MIB)})


def test_a_file_is_linked_16_times_and_then_written_afresh(tmp_path):
    for step in range(1, 20):
        save(tmp_path, {"base": np.zeros(1000)}, step)

    assert len({inode_of(tmp_path, step, "base") for step in range(1, 18)}) == 1
    assert inode_of(tmp_path, 18, "base") != inode_of(tmp_path, 17, "base")
    assert inode_of(tmp_path, 18, "base") == inode_of(tmp_path, 19, "base")


@pytest.mark.parametrize(("age", "linked"), [(23 * 3600, True), (25 * 3600, False), (-25 * 3600, False)])
def test_a_file_not_verified_for_a_day_is_written_afresh(tmp_path, age, linked):
    save(tmp_path, {"base": np.zeros(1000)}, 1)
    rewrite(tmp_path, 1, verified=manifest_of(tmp_path, 1).files[0].verified - age)
    save(tmp_path, {"base": np.zeros(1000)}, 2)

    assert (inodes(tmp_path, 1) == inodes(tmp_path, 2)) is linked


def test_links_do_not_make_a_file_look_freshly_verified(tmp_path):
    save(tmp_path, {"base": np.zeros(1000)}, 1)
    rewrite(tmp_path, 1, verified=manifest_of(tmp_path, 1).files[0].verified - 3600)
    save(tmp_path, {"base": np.zeros(1000)}, 2)

    assert manifest_of(tmp_path, 2).files[0].verified == manifest_of(tmp_path, 1).files[0].verified


def test_another_level_of_compression_links_nothing(tmp_path):
    save(tmp_path, state(), 1)
    save(tmp_path, state(), 2, compression=CompressionLevel.FAST)

    assert not inodes(tmp_path, 1) & inodes(tmp_path, 2)


def test_a_parent_that_cannot_be_read_is_passed_over(tmp_path, caplog):
    save(tmp_path, state(), 1)
    save(tmp_path, state(), 2)
    (folder(tmp_path, 2) / "manifest.json").write_bytes(b"nonsense")
    save(tmp_path, state(), 3)

    assert inodes(tmp_path, 3) == inodes(tmp_path, 1)
    assert "cannot be built on" in caplog.text
    assert same(mc.load(tmp_path, step=3), state())


def test_a_parent_whose_files_cannot_be_as_its_manifest_says_is_passed_over(tmp_path, caplog):
    """Its entries may be fine; a chunk that ends beyond its file is not."""
    for step in (1, 2):
        save(tmp_path, state(), step)
    rewrite(tmp_path, 2, name="../outside")

    save(tmp_path, state(), 3)

    assert "step-00000002: cannot be built on" in caplog.text
    assert mc.list_checkpoints(tmp_path)[0].shared_with == ("step-00000001", "step-00000002")
    assert manifest_of(tmp_path, 3).parents == (manifest_of(tmp_path, 1).id,)


def test_a_parent_whose_folder_was_renamed_is_built_on(tmp_path):
    save(tmp_path, state(), 1)
    folder(tmp_path, 1).rename(tmp_path / "checkpoints" / "best")
    save(tmp_path, state(), 2)

    assert inodes(tmp_path, 2) == {p.stat().st_ino for p in (tmp_path / "checkpoints" / "best").glob("*.safetensors")}


@pytest.mark.parametrize("code", [errno.EMLINK, errno.EPERM, errno.EXDEV, errno.ENOTSUP])
def test_where_links_fail_everything_is_written_from_memory(tmp_path, code):
    save(tmp_path, state(), 1)
    save(LocalStore(tmp_path, calls=FailingCalls().fail("link", code)), state(moving=1), 2)

    assert not inodes(tmp_path, 1) & inodes(tmp_path, 2)
    assert same(mc.load(tmp_path, step=2), state(moving=1))
    assert manifest_of(tmp_path, 2).parents == ()


def test_a_root_that_was_copied_links_nothing_until_it_was_written_again(tmp_path):
    """The copies have other inodes, whatever their manifests say."""
    save(tmp_path / "a", state(), 1)
    save(tmp_path / "a", state(), 2)
    shutil.copytree(tmp_path / "a", tmp_path / "b")

    infos = mc.list_checkpoints(tmp_path / "b")
    save(tmp_path / "b", state(), 3)
    save(tmp_path / "b", state(), 4)

    assert [info.shared_with for info in infos] == [(), ()]
    assert not inodes(tmp_path / "b", 2) & inodes(tmp_path / "b", 3)
    assert inodes(tmp_path / "b", 3) == inodes(tmp_path / "b", 4)


def test_a_single_file_cannot_be_incremental(tmp_path):
    with pytest.raises(ValueError, match="repeats whole files"):
        save(tmp_path, state(), 1, format=mc.CheckpointFormat.SINGLE_FILE)


class BrokenLinks(Syscalls):
    """A system on which a link fails as if the medium did."""

    def link(self, source, target, **folders):
        raise OSError(errno.EIO, "broken")


def test_a_link_that_the_medium_refuses_ends_the_save_and_leaves_nothing(tmp_path):
    state = {"frozen": np.arange(1000.0)}
    mc.save(tmp_path, state, step=1, incremental=True)

    with pytest.raises(StorageFailure, match=r"could not be linked to .*Input/output error"):
        mc.save(LocalStore(tmp_path, calls=BrokenLinks()), state, step=2, incremental=True)

    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [1]
    assert list((tmp_path / ".staging").iterdir()) == []
