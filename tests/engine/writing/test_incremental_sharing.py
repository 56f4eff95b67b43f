"""Checkpoints that share files: each outlives the others, damage is found in all, totals count a copy once."""

import os
import shutil

import msgspec
import numpy as np
import pytest
from safetensors import safe_open
from tests.engine.writing.linked_files import MIB, inode_of, inodes, save, state
from tests.ground.stored.equal_values import same
from tests.ground.stored.stored_files import folder, manifest_of

import model_checkpoint as mc
from model_checkpoint import CompressionLevel, errors
from model_checkpoint.engine.root.shared_files import stored_bytes
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing.blobs import AT_ONCE
from model_checkpoint.testing.faults import FaultyCalls


@pytest.mark.parametrize("level", [CompressionLevel.NONE, CompressionLevel.FAST])
def test_each_checkpoint_outlives_the_others(tmp_path, level):
    for step in range(1, 5):
        save(tmp_path, state(moving=step), step, compression=level)

    shutil.rmtree(folder(tmp_path, 2))
    mc.delete(tmp_path, step=3)
    mc.collect_garbage(tmp_path, graces=AT_ONCE)

    assert same(mc.load(tmp_path, step=1), state(moving=1))
    assert same(mc.load(tmp_path, step=4, verify="full"), state(moving=4))
    assert all(health.ok for health in mc.verify(tmp_path))


def test_a_deleted_checkpoint_comes_back_after_others_went_on(tmp_path):
    save(tmp_path, state(moving=1), 1)
    save(tmp_path, state(moving=2), 2)
    mc.delete(tmp_path, step=2)
    save(tmp_path, state(moving=3), 3)
    mc.undelete(tmp_path, step=2)

    for step in (1, 2, 3):
        assert same(mc.load(tmp_path, step=step), state(moving=step))


def test_replacing_a_checkpoint_links_from_the_one_replaced(tmp_path):
    save(tmp_path, state(moving=1), 1)
    save(tmp_path, state(moving=1), 1, overwrite=True)
    before = inodes(tmp_path, 1)
    save(tmp_path, state(moving=2), 1, overwrite=True)
    mc.collect_garbage(tmp_path, graces=AT_ONCE)

    assert same(mc.load(tmp_path), state(moving=2))
    assert len(list(folder(tmp_path, 1).iterdir())) == len(manifest_of(tmp_path, 1).files) + 1
    save(tmp_path, state(moving=3), 1, overwrite=True)
    assert inode_of(tmp_path, 1, "base") not in before  # in a file of its own since the second replacement
    assert same(mc.load(tmp_path), state(moving=3))


def test_compressed_files_are_linked_too(tmp_path):
    for step in range(1, 4):
        save(tmp_path, state(moving=step), step, compression=CompressionLevel.FAST)

    assert inode_of(tmp_path, 2, "base") == inode_of(tmp_path, 3, "base")
    assert manifest_of(tmp_path, 3).features == ("planes-zstd",)
    assert same(mc.load(tmp_path, step=3), state(moving=3))


def test_a_consolidated_model_is_linked_and_its_index_names_the_new_files(tmp_path):
    layout = mc.CheckpointFormat.CONSOLIDATED
    for step in (1, 2):
        save(tmp_path, {"model": {"w": np.ones(MIB)}, "epoch_noise": np.full(10, step)}, step, format=layout)

    index = msgspec.json.decode((folder(tmp_path, 2) / "model.safetensors.index.json").read_bytes())
    path = folder(tmp_path, 2) / index["weight_map"]["w"]
    with safe_open(path, "np") as file:
        assert np.array_equal(file.get_tensor("w"), np.ones(MIB))
    assert path.stat().st_nlink == 2


def damage(root, step, tensor):
    """Flip a bit as a disk would: neither size nor time of change tells."""
    manifest = manifest_of(root, step)
    entry = next(e for e in manifest.entries if e.name == tensor)
    path = folder(root, step) / manifest.files[entry.file].name
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(entry.start)
        byte = file.read(1)[0]
        file.seek(entry.start)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_damage_in_a_shared_file_is_found_in_all_that_share_it(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, state(moving=step), step)
    damage(tmp_path, 3, "base")

    health = {h.info.step: [list(d.tensors) for d in h.damage] for h in mc.verify(tmp_path)}

    assert health == {1: [], 2: [["base"]], 3: [["base"]]}


def test_fallback_passes_over_what_shares_the_damaged_copy(tmp_path, caplog):
    for step in (1, 2, 3, 4):
        save(tmp_path, state(moving=step), step)
    damage(tmp_path, 4, "base")

    with pytest.warns(mc.CheckpointWarning, match=r"step-00000003: passed over, it holds the very copy"):
        back = mc.load(tmp_path, fallback=True)

    assert same(back, state(moving=1))
    assert "step-00000003: passed over" in caplog.text
    assert "step-00000002: passed over" in caplog.text


def test_fallback_into_live_objects_passes_over_it_as_well(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, state(moving=step), step)
    damage(tmp_path, 3, "base")
    live = state(moving=9.0, frozen=9.0)

    with pytest.warns(mc.CheckpointWarning, match="step-00000003: ChunkMismatch"):
        mc.load(tmp_path, into=live, fallback=True)

    assert same(live, state(moving=1))


def test_when_all_share_the_damage_that_is_told(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, {"base": np.zeros(1000)}, step)
    damage(tmp_path, 3, "base")

    with pytest.raises(errors.NoHealthyCheckpoint, match=r"step-00000003: ChunkMismatch, .*tensor base\n.*very copy"):
        mc.load(tmp_path, fallback=True)


def test_replacing_what_is_damaged_links_to_nothing(tmp_path):
    """Neither to its own files nor to those of others, which may be the same copies."""
    for step in (1, 2, 3):
        save(tmp_path, state(moving=step), step)
    damage(tmp_path, 3, "base")

    save(tmp_path, state(moving=3), 3, overwrite="damaged")

    assert same(mc.load(tmp_path, step=3, verify="full"), state(moving=3))
    assert not inodes(tmp_path, 3) & inodes(tmp_path, 2)


def test_listing_and_totals_say_that_n_linked_checkpoints_are_one_copy(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, {"base": np.zeros(MIB)}, step)
    mc.save(tmp_path, {"base": np.zeros(MIB)}, step=4)

    infos = {info.step: info for info in mc.list_checkpoints(tmp_path)}

    assert infos[3].shared_with == ("step-00000001", "step-00000002")
    assert infos[3].shared_bytes == infos[3].size_bytes
    assert (infos[4].shared_with, infos[4].shared_bytes) == ((), 0)
    on_disk = {p.stat().st_ino: p.stat().st_size for p in (tmp_path / "checkpoints").rglob("*") if p.is_file()}
    assert stored_bytes(tmp_path) == sum(on_disk.values())
    assert stored_bytes(tmp_path) < 2.1 * infos[3].size_bytes


def test_a_description_says_which_others_are_the_same_copy(tmp_path):
    for step in (1, 2):
        save(tmp_path, {"base": np.zeros(MIB)}, step)

    info = mc.describe(f"{tmp_path}@2").info

    assert (info.shared_with, info.shared_bytes) == (("step-00000001",), info.size_bytes)


def test_names_are_durable_before_the_checkpoint_is_visible(tmp_path):
    """Power loss: a link is flushed with its folder before the rename that commits."""
    save(tmp_path, state(moving=1), 1)
    save(tmp_path, state(moving=2), 2)
    calls = FaultyCalls()
    save(LocalStore(tmp_path, calls=calls), state(moving=3), 3)

    names = [(call.name, call.path) for call in calls.trace]
    stage = next(path for name, path in names if name == "rename" and path.endswith("manifest.tmp")).rsplit("/", 1)[0]
    links = [i for i, (name, _) in enumerate(names) if name == "link"]
    flushed = max(i for i, call in enumerate(names) if call == ("fsync_dir", stage))
    visible = names.index(("rename", stage))
    assert links
    assert max(links) < flushed < visible


def test_incremental_saves_in_memory(tmp_path):
    root = f"memory://incremental-{os.getpid()}"
    for step in (1, 2, 3):
        save(root, state(moving=step), step)

    infos = {info.step: info for info in mc.list_checkpoints(root)}
    assert infos[3].shared_with == ("step-00000002",)
    for step in (1, 2, 3):
        assert same(mc.load(root, step=step), state(moving=step))
