"""What lies in the folder of a checkpoint that many ranks saved: repeated files, parity, a mirror, whole tensors."""

import json
import shutil

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from tests.distributed.api.own_parts import OwnStorage
from tests.distributed.threads import all_well, on_ranks, save_all

import model_checkpoint as mc
from model_checkpoint.distributed import Shard
from model_checkpoint.distributed.storing.storage_roots import store_of
from model_checkpoint.errors import OptionInvalid

FROZEN = np.arange(3 << 20, dtype=np.uint8)
SINGLE, CONSOLIDATED = mc.CheckpointFormat.SINGLE_FILE, mc.CheckpointFormat.CONSOLIDATED


def rows(whole, rank, world):
    """The rows of one rank, the last ones fewer."""
    size = -(-len(whole) // world)
    part = whole[size * rank : size * (rank + 1)].copy()
    return Shard(part, global_shape=whole.shape, offsets=(min(len(whole), size * rank), *[0] * (whole.ndim - 1)))


def files_of(root, step, pattern="*"):
    return sorted((root / "checkpoints" / f"step-{step:08d}").glob(pattern))


# --- incremental -----------------------------------------------------------------------------------------------------


def test_each_rank_repeats_its_own_unchanged_files_by_link(tmp_path):
    for step in (1, 2, 3):
        save_all(tmp_path, 2, lambda r, step=step: {"frozen": FROZEN, "w": np.arange(9) + step, "own": r}, step=step,
                 incremental=True)  # fmt: skip

    inodes = [{file.stat().st_ino for file in files_of(tmp_path, step, "r*.safetensors")} for step in (1, 2, 3)]
    assert len(inodes[1] & inodes[2]) >= 2
    infos = mc.list_checkpoints(tmp_path)
    assert infos[0].shared_bytes > 0.9 * FROZEN.nbytes
    assert infos[0].shared_with
    shutil.rmtree(tmp_path / "checkpoints/step-00000002")
    assert all(health.ok for health in mc.verify(tmp_path))
    state = mc.load(tmp_path, per_rank=1)
    assert np.array_equal(state["frozen"], FROZEN)
    assert (state["w"].tolist(), state["own"]) == (list(range(3, 12)), 1)


def test_a_rank_whose_part_lies_elsewhere_now_repeats_nothing_stale(tmp_path):
    whole = np.arange(4 << 20, dtype=np.uint8).reshape(64, -1)
    for step, world in ((1, 2), (2, 2), (3, 4), (4, 4)):
        save_all(tmp_path, world, lambda r, w=world: {"x": rows(whole, r, w)}, step=step, incremental=True)

    assert all(health.ok for health in mc.verify(tmp_path))
    for step in (1, 2, 3, 4):
        assert np.array_equal(mc.load(tmp_path, step=step)["x"], whole)
    two, three, four = ({file.stat().st_ino for file in files_of(tmp_path, step, "r*")} for step in (2, 3, 4))
    assert not two & three
    assert three & four


# --- parity and mirror -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["r1-*.safetensors", "rank-1-*.json", "manifest.json"])
def test_a_file_of_any_rank_comes_back_from_parity(tmp_path, lost):
    save_all(tmp_path, 3, lambda r: {"w": FROZEN, "own": np.full(1000, r)}, step=1, parity="xor")
    mc.finish_saves(tmp_path)
    before = {file.name: file.read_bytes() for file in files_of(tmp_path, 1)}
    victim = files_of(tmp_path, 1, lost)[0]
    if lost == "manifest.json":
        victim.write_bytes(b"gone")
    else:
        victim.unlink()

    report = mc.repair(tmp_path)

    assert report.ok
    assert {file.name: file.read_bytes() for file in files_of(tmp_path, 1)} == before
    assert mc.verify(tmp_path)[0].ok


def test_the_mirror_of_many_ranks_is_a_whole_checkpoint(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    save_all(first, 2, lambda r: {"w": FROZEN, "own": r}, step=1, mirror=second)
    mc.finish_saves(first)
    files_of(first, 1, "rank-1-*.json")[0].unlink()

    assert mc.verify(second)[0].ok
    assert np.array_equal(mc.load(second, per_rank=0)["w"], FROZEN)
    assert mc.repair(first, source=second).ok
    assert mc.load(first, per_rank=1)["own"] == 1


# --- whole tensors ---------------------------------------------------------------------------------------------------


def nested_state(rank, world, whole):
    return {
        "model": {"a": {"weight": rows(whole, rank, world)}, "b": whole[:5] + 1, "one": np.float32(3)},
        "optimizer": {"m": rows(whole.astype(np.float64), rank, world), "own": np.arange(rank, rank + 3)},
        "step": 7,
    }


@pytest.mark.parametrize("layout", [SINGLE, CONSOLIDATED])
@pytest.mark.parametrize("world", [2, 3])
def test_files_of_whole_tensors_are_what_one_process_would_have_saved(tmp_path, layout, world):
    whole = np.arange(700 * 1300, dtype=np.float32).reshape(700, 1300)

    info = save_all(tmp_path, world, lambda r: nested_state(r, world, whole), step=1, format=layout)[0]

    assert (info.format, info.world_size) == (layout, world)
    names = [file.name for file in files_of(tmp_path, 1)]
    assert not [name for name in names if name.startswith("rank-")]
    assert list((tmp_path / ".staging").iterdir()) == []
    assert mc.verify(tmp_path)[0].ok
    loaded = all_well(on_ranks(world, lambda c: mc.load(tmp_path, coordinator=c)))
    for rank, state in enumerate(loaded):
        assert np.array_equal(state["model"]["a"]["weight"], whole)
        assert np.array_equal(state["optimizer"]["m"], whole)
        assert state["optimizer"]["own"].tolist() == list(range(rank, rank + 3))
    if layout is SINGLE:
        assert len([name for name in names if name.endswith(".safetensors")]) == 1


def test_a_consolidated_model_opens_with_plain_tools(tmp_path):
    whole = np.arange(700 * 1300, dtype=np.float32).reshape(700, 1300)
    save_all(tmp_path, 2, lambda r: nested_state(r, 2, whole), step=1, format=CONSOLIDATED)
    folder = tmp_path / "checkpoints/step-00000001"

    index = json.loads((folder / "model.safetensors.index.json").read_text())

    assert sorted(index["weight_map"]) == ["a.weight", "b"]
    found = load_file(folder / index["weight_map"]["a.weight"])
    assert np.array_equal(found["a.weight"], whole)
    with safe_open(folder / index["weight_map"]["b"], "np") as file:
        assert np.array_equal(file.get_tensor("b"), whole[:5] + 1)


@pytest.mark.parametrize("where", ["folder", "memory", "keys"])
def test_a_consolidated_model_of_many_ranks_is_replaced_with_its_index(tmp_path, where):
    root = {"folder": tmp_path, "memory": f"memory://{tmp_path.name}", "keys": store_of(OwnStorage())}[where]
    for fill in (1, 2):
        whole = np.full((70, 130), fill, np.float32)
        save_all(root, 2, lambda r, whole=whole: nested_state(r, 2, whole), step=1, format=CONSOLIDATED, overwrite=True)

    assert [health.ok for health in mc.verify(root)] == [True]
    loaded = all_well(on_ranks(2, lambda c: mc.load(root, coordinator=c)))
    assert all((state["model"]["a"]["weight"] == 2).all() for state in loaded)
    if where == "folder":
        folder = tmp_path / "checkpoints/step-00000001"
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        assert (load_file(folder / index["weight_map"]["a.weight"])["a.weight"] == 2).all()
        assert list((tmp_path / ".staging").iterdir()) == []


@pytest.mark.slow
@pytest.mark.distributed
def test_no_rank_holds_the_whole_tensors_that_it_makes(zygote, tmp_path):
    size = 448 << 20  # of one rank; read back through 256 MiB of chunks, written through slabs of 192 MiB
    scene = "tests.distributed.scenes:consolidate_rows"

    took = zygote.run(scene, 2, tmp_path / "scene", root=str(tmp_path), rank_bytes=size, seconds=120)

    assert max(took) < 704 << 20 < 2 * size
    (file,) = files_of(tmp_path, 2, "*.safetensors")
    assert file.stat().st_size > 2 * size


def test_whole_tensors_are_not_repeated(tmp_path):
    options = {"format": CONSOLIDATED, "incremental": True}
    outcomes = on_ranks(2, lambda c: mc.save(tmp_path, {"a": 1}, step=1, coordinator=c, **options))

    assert [type(one) for one in outcomes] == [OptionInvalid] * 2
    assert all("files of whole tensors are made anew" in str(one) for one in outcomes)


# --- what there is to see --------------------------------------------------------------------------------------------


def test_a_description_tells_ranks_meshes_and_placements(tmp_path):
    whole = np.arange(64.0).reshape(8, 8)
    save_all(tmp_path, 2, lambda r: {"x": rows(whole, r, 2), "y": whole, "own": r}, step=1)

    told = mc.describe(tmp_path)

    assert [one.rank for one in told.ranks] == [0, 1]
    assert all(one.files[0].startswith(f"r{one.rank}-0-") and one.nbytes > 256 for one in told.ranks)
    x, y = (told.layouts[line.layout] for line in told.tensors)
    assert (x.mesh, x.ranks, x.tensors) == ((), (0, 1), 1)
    assert (y.mesh, y.placements, y.ranks) == ((2,), ("Replicate()",), (0, 1))
