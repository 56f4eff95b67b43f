"""What was damaged or lost comes back bit for bit, or is named; nothing else is ever touched."""

import errno
import itertools
import os
import shutil
import threading

import msgspec
import numpy as np
import pytest
from tests.engine.repairing.repair_ground import CHUNK, NOW_BUT_KEEP_TRASH, content, data_files, flip, save, state
from tests.ground.stored.stored_files import flip as flip_in_place
from tests.ground.stored.stored_files import folder, manifest_of

import model_checkpoint as mc
from model_checkpoint import CheckpointFormat, CompressionLevel, errors
from model_checkpoint.manifest import encode
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing.blobs import AT_ONCE

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.mark.slow
def test_all_45_pairs_of_10_lost_files_come_back(tmp_path):
    """Eight data files and both sums: any two may be gone."""
    save(tmp_path, state(), parity="pq")
    before = content(tmp_path)
    files = [name for name in before if name != "manifest.json"]
    assert len(files) == 10

    for pair in itertools.combinations(files, 2):
        for name in pair:
            (folder(tmp_path) / name).unlink()
        report = mc.repair(tmp_path)
        assert report.ok
        assert {one.file for one in report.repaired} == {*pair}
        assert content(tmp_path) == before


@pytest.mark.parametrize("options", [{"compression": CompressionLevel.FAST}, {"format": CheckpointFormat.CONSOLIDATED}])
def test_files_of_every_kind_come_back(tmp_path, options):
    tensors = {name: np.repeat(array, 4) for name, array in state().items()}  # so that there is something to compress
    save(tmp_path, {"model": tensors, "rest": state(9)}, parity="pq", **options)
    before = content(tmp_path)

    for name in [name for name in before if name != "manifest.json" and not name.endswith(".parity")]:
        (folder(tmp_path) / name).unlink()
        assert mc.repair(tmp_path).ok
        assert content(tmp_path) == before


@pytest.mark.parametrize("scheme", ["xor", "pq"])
def test_a_single_file_comes_back(tmp_path, scheme):
    save(tmp_path, state(), parity=scheme, format=CheckpointFormat.SINGLE_FILE)
    before = content(tmp_path)
    (folder(tmp_path) / data_files(tmp_path)[0]).unlink()

    assert mc.repair(tmp_path).ok

    assert content(tmp_path) == before


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "empty", "header"])
def test_any_kind_of_damage_is_undone(tmp_path, damage):
    save(tmp_path, state(), parity="xor")
    before = content(tmp_path)
    path = folder(tmp_path) / data_files(tmp_path)[2]
    data = before[path.name]
    path.unlink()
    path.write_bytes(
        {
            "flip": data[:9000] + bytes([data[9000] ^ 4]) + data[9001:],
            "cut": data[:-1],
            "grow": data + b"more",
            "empty": b"",
            "header": b"\xff" * 64 + data[64:],
        }[damage]
    )
    assert not mc.verify(tmp_path)[0].ok

    report = mc.repair(tmp_path)

    assert report.ok
    assert content(tmp_path) == before
    assert mc.verify(tmp_path)[0].ok


def test_a_repair_leaves_no_file_open(tmp_path):
    save(tmp_path, state(), parity="pq")
    for name in data_files(tmp_path)[:2]:
        flip(folder(tmp_path) / name, 4096 + CHUNK)
    before = os.listdir("/proc/self/fd")

    assert mc.repair(tmp_path).ok

    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("elsewhere", ["another checkpoint", "another root"])
def test_what_another_checkpoint_has_helps_one_sum_to_make_up_for_two_files(tmp_path, elsewhere):
    """Both are damaged at one place; the twin of one gives back what the sum needs to give back the other."""
    root, other = tmp_path / "root", tmp_path / "other"
    save(root, state(), parity="xor")
    before = content(root)
    twin = {"w1": state()["w1"]}
    save(root if elsewhere == "another checkpoint" else other, twin, step=2)
    for name in data_files(root)[:2]:
        flip(folder(root) / name, 4096 + CHUNK)

    report = mc.repair(f"{root}@1", source=None if elsewhere == "another checkpoint" else other)

    assert (report.ok, len(report.repaired)) == (True, 2)
    assert content(root) == before


def test_damage_in_other_places_of_every_file_is_within_the_power_of_one_sum(tmp_path):
    """A sum makes up for one file at each byte, not for one file in all."""
    save(tmp_path, state(size=8 * CHUNK), parity="xor")
    before = content(tmp_path)
    for number, name in enumerate(data_files(tmp_path)):
        flip(folder(tmp_path) / name, 4096 + number * CHUNK + 100)

    report = mc.repair(tmp_path)

    assert report.ok
    assert len(report.repaired) == 8
    assert content(tmp_path) == before


def test_what_cannot_be_had_back_is_named_precisely_and_untouched(tmp_path):
    save(tmp_path, state())
    files = data_files(tmp_path)
    flip(folder(tmp_path) / files[0], 4096 + CHUNK + 5)
    hurt = content(tmp_path)

    report = mc.repair(tmp_path)

    assert not report.ok
    assert [(one.file, one.chunk, one.tensors) for one in report.lost] == [(files[0], 2, ("w0",))]
    assert report.lost_tensors == ("step-00000001: w0",)
    assert "no other checkpoint, parity file or second store" in report.lost[0].reason
    assert content(tmp_path) == hurt


def test_an_equal_chunk_of_another_checkpoint_brings_it_back(tmp_path):
    save(tmp_path, state(), 1)
    save(tmp_path, {**state(), "step": np.arange(5)}, 2)
    before = content(tmp_path, 2)
    for name in data_files(tmp_path, 2):
        flip(folder(tmp_path, 2) / name, 4096 + 2 * CHUNK + 7)

    report = mc.repair(tmp_path, 2)

    assert report.ok
    assert {origin for one in report.repaired for origin in one.sources} == {"another checkpoint"}
    assert content(tmp_path, 2) == before


def test_an_equal_chunk_that_is_damaged_as_well_is_not_believed(tmp_path):
    for step in (1, 2):
        save(tmp_path, state(), step)
        flip(folder(tmp_path, step) / data_files(tmp_path, step)[0], 9000)
    hurt = content(tmp_path, 1), content(tmp_path, 2)

    report = mc.repair(tmp_path)

    assert {one.checkpoint for one in report.lost} == {"step-00000001", "step-00000002"}
    assert (content(tmp_path, 1), content(tmp_path, 2)) == hurt


def test_parity_and_equal_chunks_make_up_for_more_than_either(tmp_path):
    """Three lost files are too many for two sums, unless one of them is found elsewhere."""
    what = state()
    save(tmp_path, {"w0": what["w0"]}, 1)
    save(tmp_path, what, 2, parity="pq")
    before = content(tmp_path, 2)
    entries, files = manifest_of(tmp_path, 2).entries, data_files(tmp_path, 2)
    holder = {entry.name: files[entry.file] for entry in entries}
    for name in ("w0", "w1", "w2"):
        flip(folder(tmp_path, 2) / holder[name], 4096 + CHUNK + 10)

    report = mc.repair(tmp_path, 2)

    assert report.ok
    assert {origin for one in report.repaired for origin in one.sources} == {"another checkpoint", "parity"}
    assert content(tmp_path, 2) == before


def test_a_second_store_brings_back_what_nothing_else_does(tmp_path):
    save(tmp_path / "a", state())
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    before = content(tmp_path / "a")
    for name in data_files(tmp_path / "a"):
        (folder(tmp_path / "a") / name).unlink()

    assert not mc.repair(tmp_path / "a", dry_run=True).ok
    report = mc.repair(tmp_path / "a", source=tmp_path / "b")

    assert report.ok
    assert {origin for one in report.repaired for origin in one.sources} == {"second store"}
    assert content(tmp_path / "a") == before


def test_another_state_in_the_second_store_is_never_taken_for_this_one(tmp_path):
    save(tmp_path / "a", state(0))
    save(tmp_path / "b", state(1))
    for name in data_files(tmp_path / "a"):
        (folder(tmp_path / "a") / name).unlink()
    hurt = content(tmp_path / "a")

    report = mc.repair(tmp_path / "a", source=tmp_path / "b")

    assert sorted(report.lost_tensors) == [f"step-00000001: w{i}" for i in range(8)]
    assert content(tmp_path / "a") == hurt


def test_every_checkpoint_that_shares_a_damaged_copy_gets_the_new_one(tmp_path):
    """Three checkpoints, one copy; only one of them has parity and is asked for."""
    frozen = {f"f{i}": array for i, array in enumerate(state(5).values())}
    for step in (1, 2, 3):
        save(tmp_path, {**frozen, "x": np.full(9, step)}, step, incremental=True, parity="pq" if step == 1 else None)
    shared = [p for p in folder(tmp_path, 1).glob("*.safetensors") if p.stat().st_nlink == 3]
    before = [content(tmp_path, step) for step in (1, 2, 3)]
    flip_in_place(shared[0], 4096 + 77)
    assert not any(health.ok for health in mc.verify(tmp_path))

    report = mc.repair(tmp_path, 1)

    assert report.ok
    assert report.repaired[0].shared_with == ("step-00000002", "step-00000003")
    assert [content(tmp_path, step) for step in (1, 2, 3)] == before
    assert shared[0].stat().st_nlink == 3
    assert mc.list_checkpoints(tmp_path)[0].shared_with


def test_the_damaged_file_is_in_the_trash_until_its_grace_is_over(tmp_path):
    save(tmp_path, state(), parity="xor")
    path = folder(tmp_path) / data_files(tmp_path)[0]
    flip(path, 9000)
    damaged = path.read_bytes()

    mc.repair(tmp_path)

    (kept,) = (tmp_path / ".trash").glob(f"*/{path.name}")
    assert kept.read_bytes() == damaged
    mc.collect_garbage(tmp_path, graces=NOW_BUT_KEEP_TRASH)
    assert kept.exists()
    assert len(mc.collect_garbage(tmp_path, graces=AT_ONCE).trashed) == 1
    assert not kept.exists()


def test_a_dry_run_tells_and_changes_nothing(tmp_path):
    save(tmp_path, state(), parity="pq")
    for name in data_files(tmp_path)[:2]:
        (folder(tmp_path) / name).unlink()
    hurt = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    report = mc.repair(tmp_path, dry_run=True)

    assert report.ok
    assert report.dry_run
    assert [one.file for one in report.repaired] == data_files(tmp_path)[:2]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == hurt


def test_a_second_repair_finds_nothing_to_do(tmp_path):
    save(tmp_path, state(), parity="pq")
    (folder(tmp_path) / data_files(tmp_path)[0]).unlink()
    mc.repair(tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    report = mc.repair(tmp_path)

    assert report.ok
    assert not report.repaired
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == stamps


def test_repairs_at_once_are_safe(tmp_path):
    save(tmp_path, state(), parity="pq")
    before = content(tmp_path)
    for name in data_files(tmp_path)[:2]:
        flip(folder(tmp_path) / name, 9000)
    reports, start = [], threading.Barrier(4)

    def work():
        start.wait()
        reports.append(mc.repair(tmp_path))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [report.ok for report in reports] == [True] * 4
    assert content(tmp_path) == before
    assert os.listdir(tmp_path / ".staging") == []


def test_what_cannot_be_read_here_is_not_touched(tmp_path):
    """A newer format is not damage."""
    save(tmp_path, state(), parity="pq")
    newer = msgspec.structs.replace(manifest_of(tmp_path), features=("from-the-future",))
    (folder(tmp_path) / "manifest.json").write_bytes(encode(newer))
    before = content(tmp_path)

    report = mc.repair(tmp_path)

    assert not report.ok
    assert not report.lost
    assert "from-the-future" in report.unread[0].problem
    assert content(tmp_path) == before


def test_one_checkpoint_is_chosen_as_everywhere(tmp_path):
    for step in (1, 2):
        save(tmp_path, state(step), step, parity="xor", metrics={"loss": step})
        flip(folder(tmp_path, step) / data_files(tmp_path, step)[0], 9000)

    assert [info.step for info in mc.repair(tmp_path, "best:loss").examined] == [1]
    assert mc.repair(f"{tmp_path}@1").ok
    assert mc.verify(tmp_path, step=1)[0].ok
    assert not mc.verify(tmp_path, step=2)[0].ok
    assert [info.step for info in mc.repair(tmp_path, 2).examined] == [2]
    with pytest.raises(errors.WrongReference, match="no step 9"):
        mc.repair(tmp_path, 9)
    with pytest.raises(errors.CheckpointNotFound, match="no such checkpoint root"):
        mc.repair(tmp_path / "nowhere")


def test_a_second_store_that_does_not_answer_is_told_with_what_is_lost(tmp_path):
    save(tmp_path / "a", state())
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "checkpoints").write_text("no folder")
    (folder(tmp_path / "a") / data_files(tmp_path / "a")[0]).unlink()

    report = mc.repair(tmp_path / "a", source=tmp_path / "b")

    assert not report.ok
    assert "and the second store did not answer" in report.lost[0].reason


def test_repair_works_where_a_file_system_has_no_links_and_no_locks(tmp_path):
    class Plain(Syscalls):
        def link(self, *_, **__):
            raise OSError(errno.EPERM, "no links here")

        def flock(self, fd, operation):
            raise OSError(errno.ENOTSUP, "no locks here")

    save(tmp_path, state(), parity="xor")
    before = content(tmp_path)
    path = folder(tmp_path) / data_files(tmp_path)[0]
    flip(path, 9000)

    assert mc.repair(LocalStore(tmp_path, calls=Plain())).ok

    assert content(tmp_path) == before
    assert len(list((tmp_path / ".trash").glob(f"*/{path.name}"))) == 1


def test_a_hard_link_to_something_else_is_never_replaced(tmp_path):
    """The same copy under another digest is somebody else's business."""
    save(tmp_path, state(0), 1, parity="xor")
    save(tmp_path, state(1), 2)
    path, alien = folder(tmp_path, 1) / data_files(tmp_path, 1)[0], folder(tmp_path, 2) / data_files(tmp_path, 2)[0]
    alien.unlink()
    os.link(path, alien)
    flip_in_place(path, 9000)
    damaged = alien.read_bytes()

    report = mc.repair(tmp_path, 1)

    assert report.ok
    assert report.repaired[0].shared_with == ()
    assert alien.read_bytes() == damaged
