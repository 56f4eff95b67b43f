"""A mirror holds ordinary checkpoints, written behind the acknowledgement, and counts as the second store."""

import shutil
import threading

import pytest
from tests.engine.repairing.repair_ground import content, data_files, flip, save, state
from tests.ground.stored.equal_values import same
from tests.ground.stored.stored_files import folder

import model_checkpoint as mc
from model_checkpoint import CheckpointFormat, CompressionLevel, errors
from model_checkpoint.engine.repairing import protect
from model_checkpoint.engine.repairing.mirror import copy_checkpoint
from model_checkpoint.storage.local.store import LocalStore

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.fixture
def s3(moto, monkeypatch, tmp_path):
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/repair/{tmp_path.name}"


@pytest.mark.parametrize(
    "options",
    [{}, {"parity": "pq"}, {"compression": CompressionLevel.FAST}, {"format": CheckpointFormat.CONSOLIDATED}],
    ids=str,
)
def test_a_mirror_is_the_same_checkpoint_byte_for_byte(tmp_path, options):
    what = {"model": state(), "epoch": 3}
    info = save(tmp_path / "a", what, mirror=tmp_path / "b", metrics={"loss": 0.5}, **options)

    assert info.mirror == str(tmp_path / "b")
    assert content(tmp_path / "b") == content(tmp_path / "a")
    assert all(health.ok and not health.parity for health in mc.verify(tmp_path / "b"))
    assert same(mc.load(tmp_path / "b", best="loss")["model"], state())
    assert mc.repair(tmp_path / "b").ok


def test_a_background_save_is_mirrored_too(tmp_path):
    job = mc.save_async(tmp_path / "a", state(), step=1, mirror=str(tmp_path / "b"))

    job.wait_protected(60)

    assert content(tmp_path / "b") == content(tmp_path / "a")


def test_the_save_returns_before_its_mirror_is_written(tmp_path, monkeypatch):
    begin = threading.Event()
    copy = protect.copy_checkpoint
    monkeypatch.setattr(protect, "copy_checkpoint", lambda *args: begin.wait(10) and copy(*args))

    mc.save(tmp_path / "a", state(), step=1, mirror=tmp_path / "b")

    assert same(mc.load(tmp_path / "a"), state())
    assert not (tmp_path / "b").exists()
    begin.set()
    mc.finish_saves()
    assert same(mc.load(tmp_path / "b"), state())


def test_a_replaced_checkpoint_is_replaced_in_the_mirror(tmp_path):
    for seed in (0, 1):
        save(tmp_path / "a", state(seed), overwrite=True, mirror=tmp_path / "b", parity="xor")

    assert content(tmp_path / "b") == content(tmp_path / "a")
    assert same(mc.load(tmp_path / "b"), state(1))


def test_a_copy_that_is_there_is_not_made_again(tmp_path):
    save(tmp_path / "a", state(), mirror=tmp_path / "b")
    before = {path: path.stat().st_ino for path in (tmp_path / "b").rglob("*")}

    done = copy_checkpoint(LocalStore(tmp_path / "a"), "step-00000001", LocalStore(tmp_path / "b"))

    assert not done
    assert {path: path.stat().st_ino for path in (tmp_path / "b").rglob("*")} == before


def test_damaged_bytes_are_never_mirrored(tmp_path):
    save(tmp_path / "a", state())
    flip(folder(tmp_path / "a") / data_files(tmp_path / "a")[0], 9000)

    with pytest.raises(errors.ChunkMismatch, match=r"chunk \d+ does not have the recorded digest, so it is not copied"):
        copy_checkpoint(LocalStore(tmp_path / "a"), "step-00000001", LocalStore(tmp_path / "b"))

    assert LocalStore(tmp_path / "b").names() == []
    assert list((tmp_path / "b" / ".staging").iterdir()) == []


def test_a_later_process_copies_what_an_earlier_one_did_not_get_to(tmp_path, monkeypatch):
    """Also after a kill; but not what somebody deleted from the mirror, nor what was never meant for it."""
    save(tmp_path / "a", state(0), 1)
    save(tmp_path / "a", state(3), 3, mirror=tmp_path / "b")
    mc.delete(tmp_path / "b", step=3)
    monkeypatch.setattr(protect, "copy_checkpoint", lambda *_: False)
    save(tmp_path / "a", state(2), 2, mirror=tmp_path / "b")
    monkeypatch.undo()
    protect._caught_up.clear()  # as a new process would

    save(tmp_path / "a", state(4), 4, mirror=tmp_path / "b")

    assert [info.step for info in mc.list_checkpoints(tmp_path / "b")] == [4, 2]


def test_the_mirror_a_checkpoint_was_saved_with_brings_it_back(tmp_path):
    save(tmp_path / "a", state(), mirror=tmp_path / "b")
    before = content(tmp_path / "a")
    (folder(tmp_path / "a") / data_files(tmp_path / "a")[0]).unlink()

    report = mc.repair(tmp_path / "a")

    assert report.ok
    assert {origin for one in report.repaired for origin in one.sources} == {"second store"}
    assert content(tmp_path / "a") == before


def test_a_damaged_manifest_comes_back_from_the_mirror_of_its_siblings(tmp_path):
    for step in (1, 2):
        save(tmp_path / "a", state(step), step, mirror=tmp_path / "b")
    before = content(tmp_path / "a", 1)
    flip(folder(tmp_path / "a", 1) / "manifest.json", 300)

    assert mc.repair(tmp_path / "a").ok

    assert content(tmp_path / "a", 1) == before


def test_a_mirror_that_cannot_be_written_is_told_and_the_save_is_safe(tmp_path):
    (tmp_path / "b").write_text("no folder")

    mc.save(tmp_path / "a", state(), step=1, mirror=tmp_path / "b")

    with pytest.raises(errors.ProtectionFailed, match=r"step-00000001: is saved and whole, but its parity or mirror"):
        mc.finish_saves()
    assert same(mc.load(tmp_path / "a"), state())


def test_a_lost_mirror_is_filled_again_by_a_repair_that_names_it(tmp_path):
    for step in (1, 2):
        save(tmp_path / "a", state(step), step, mirror=tmp_path / "b")
    shutil.rmtree(tmp_path / "b")

    assert not mc.repair(tmp_path / "a").mirrored  # nobody writes to where a manifest tells him to
    report = mc.repair(tmp_path / "a", source=tmp_path / "b")

    assert sorted(report.mirrored) == ["step-00000001", "step-00000002"]
    assert content(tmp_path / "b", 2) == content(tmp_path / "a", 2)


def test_a_source_that_is_not_there_is_refused_though_nothing_is_damaged(tmp_path):
    save(tmp_path / "a", state(), 1, mirror=tmp_path / "b")

    with pytest.raises(errors.CheckpointNotFound, match=r"source=.*/typo: there is no root, .* Nothing was done\."):
        mc.repair(tmp_path / "a", source=tmp_path / "typo")


def test_a_root_is_no_mirror_of_itself(tmp_path):
    for start in (mc.save, mc.save_async):
        with pytest.raises(errors.OptionInvalid, match="is the root itself"):
            start(tmp_path, state(), step=1, mirror=tmp_path)


@pytest.mark.slow
@pytest.mark.s3
def test_a_bucket_mirrors_a_folder_and_brings_it_back(tmp_path, s3):
    save(tmp_path, state(), mirror=s3, parity="xor")
    before = content(tmp_path)
    assert same(mc.load(s3, verify="full"), state())
    for name in before:
        if name != "manifest.json":
            (folder(tmp_path) / name).unlink()

    assert mc.repair(tmp_path).ok

    assert content(tmp_path) == before


@pytest.mark.slow
@pytest.mark.s3
def test_a_checkpoint_in_a_bucket_has_parity_and_is_repaired_from_it(s3, moto):
    save(s3, state(), parity="pq")
    store = moto.client("bucket")
    keys = [item["path"] for batch in store.list(s3.removeprefix("s3://bucket/")) for item in batch]
    data = sorted(key for key in keys if key.endswith(".safetensors"))
    before = {key: bytes(store.get(key).bytes()) for key in keys}
    store.delete(data[0])
    store.put(data[1], b"?" + before[data[1]][1:])

    report = mc.repair(s3)

    assert report.ok
    assert {key: bytes(store.get(key).bytes()) for key in keys} == before
    (info,) = mc.list_checkpoints(s3)
    assert (info.parity, info.protected) == ("pq", True)
    assert all(health.ok and not health.parity for health in mc.verify(s3))
    mc.delete(s3, step=1)
    mc.undelete(s3, step=1)
    assert mc.list_checkpoints(s3)[0].protected


@pytest.mark.s3
def test_a_damaged_manifest_in_a_bucket_comes_back(s3, moto):
    save(s3, state(), parity="xor")
    key = f"{s3.removeprefix('s3://bucket/')}/checkpoints/step-00000001/manifest.json"
    store = moto.client("bucket")
    before = bytes(store.get(key).bytes())
    store.put(key, before[:100] + b"?" + before[101:])
    assert mc.list_checkpoints(s3)[0].problem

    assert mc.repair(s3).ok

    assert bytes(store.get(key).bytes()) == before
    assert same(mc.load(s3, verify="full"), state())


@pytest.mark.s3
def test_an_overwritten_checkpoint_in_a_bucket_leaves_no_old_parity(s3):
    for seed in (0, 1):
        save(s3, state(seed), parity="pq", overwrite=True)

    names = mc.storage.locate.open_store(s3).files("step-00000001")
    assert len([name for name in names if name.endswith(".parity")]) == 2
    assert mc.list_checkpoints(s3)[0].protected
    assert mc.repair(s3).ok
