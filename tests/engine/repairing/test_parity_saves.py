"""Parity files come behind the acknowledgement, follow their checkpoint everywhere, and never harm it."""

import logging
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from tests.engine.repairing.repair_ground import content, data_files, flip, save, state
from tests.ground.crowds import in_child
from tests.ground.stored.equal_values import same
from tests.ground.stored.stored_files import folder, manifest_of

import model_checkpoint as mc
from model_checkpoint import CheckpointFormat, CompressionLevel, errors
from model_checkpoint.engine.jobs import followups
from model_checkpoint.engine.reading.chunks.stored_chunks import stored_chunks
from model_checkpoint.engine.repairing import parity_writer, protect
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.storage.locate import open_store
from model_checkpoint.testing.blobs import AT_ONCE

pytestmark = pytest.mark.usefixtures("small_chunks")


def parity_files(root, step=1):
    return sorted(path.name for path in folder(root, step).glob("*.parity"))


@pytest.mark.parametrize(("scheme", "kinds"), [("xor", ["p"]), ("pq", ["p", "q"])])
def test_parity_files_are_there_when_all_saves_are_finished(tmp_path, scheme, kinds):
    info = mc.save(tmp_path, state(), step=1, parity=scheme)
    mc.finish_saves(tmp_path)

    assert [name[0] for name in parity_files(tmp_path)] == kinds
    assert info.parity == scheme
    (listed,) = mc.list_checkpoints(tmp_path)
    assert (listed.parity, listed.protected) == (scheme, True)
    assert mc.describe(tmp_path).info.protected
    (health,) = mc.verify(tmp_path)
    assert health.ok
    assert not health.parity


def test_a_checkpoint_without_parity_has_no_trace_of_it(tmp_path):
    save(tmp_path, state())

    (listed,) = mc.list_checkpoints(tmp_path)
    assert (listed.parity, listed.protected) == ("", False)
    assert parity_files(tmp_path) == []


def test_the_save_returns_before_its_parity_is_made(tmp_path, monkeypatch):
    begin = threading.Event()
    made = protect.make_parity
    monkeypatch.setattr(protect, "make_parity", lambda *args: begin.wait(10) and made(*args))

    mc.save(tmp_path, state(), step=1, parity="pq")

    assert same(mc.load(tmp_path), state())
    assert parity_files(tmp_path) == []
    assert not mc.list_checkpoints(tmp_path)[0].protected
    begin.set()
    mc.finish_saves()
    assert mc.list_checkpoints(tmp_path)[0].protected


def test_a_checkpoint_that_is_replaced_before_it_is_protected_fails_nobody(tmp_path):
    class ReplacedMidway(Syscalls):
        saved = False

        def open(self, path, flags, *, folder=None):
            if self.saved and path.endswith(".safetensors"):
                self.saved = False
                mc.save(tmp_path, state() | {"new": 1}, step=1, overwrite=True, parity="xor")
            return super().open(path, flags, folder=folder)

        def rename(self, source, target, **folders):
            super().rename(source, target, **folders)
            self.saved = self.saved or "/checkpoints/" in target

    mc.save(LocalStore(tmp_path, calls=ReplacedMidway()), state(), step=1, parity="xor")
    mc.finish_saves()

    assert [health.ok for health in mc.verify(tmp_path)] == [True]
    assert mc.list_checkpoints(tmp_path)[0].protected
    assert mc.load(tmp_path)["new"] == 1


def test_a_background_save_is_durable_first_and_protected_later(tmp_path):
    job = mc.save_async(tmp_path, state(), step=1, parity="xor")

    assert job.result().step == 1
    assert job.wait_protected(60).step == 1
    assert len(parity_files(tmp_path)) == 1


def test_waiting_for_protection_ends_at_its_time(tmp_path, monkeypatch):
    begin = threading.Event()
    monkeypatch.setattr(protect, "make_parity", lambda *_: begin.wait(10))
    job = mc.save_async(tmp_path, state(), step=1, parity="xor")
    job.result()

    with pytest.raises(errors.SaveTimeout, match="its parity or mirror is not made yet"):
        job.wait_protected(0.01)

    begin.set()


@pytest.mark.slow
def test_the_end_of_the_program_waits_for_parity(tmp_path):
    program = f"""
import numpy as np, model_checkpoint as mc
mc.save({str(tmp_path)!r}, {{"w": np.arange(3_000_000.0)}}, step=1, parity="pq")
mc.save_async({str(tmp_path)!r}, {{"w": np.arange(3_000_000.0)}}, step=2, parity="pq")
"""
    subprocess.run([sys.executable, "-c", program], check=True)

    assert [info.protected for info in mc.list_checkpoints(tmp_path)] == [True, True]


def test_files_are_cut_so_that_a_sum_costs_an_eighth(tmp_path):
    save(tmp_path, {f"w{i}": np.zeros(40_000, np.uint8) + i for i in range(32)}, parity="pq")

    sizes = [record.size for record in manifest_of(tmp_path).files]
    assert len(sizes) == 8
    assert sum(len(content(tmp_path)[name]) for name in parity_files(tmp_path)) < sum(sizes) / 4 * 1.15


@pytest.mark.parametrize(
    "options",
    [
        {"format": CheckpointFormat.SINGLE_FILE},
        {"format": CheckpointFormat.CONSOLIDATED},
        {"compression": CompressionLevel.FAST},
        {"incremental": True},
        {"name": "best-so-far"},
    ],
    ids=str,
)
@pytest.mark.parametrize("what", [{}, {"epoch": 1}, {"model": {"w": np.arange(9.0)}, "rest": state(parts=3)}], ids=len)
def test_every_kind_of_checkpoint_can_have_parity(tmp_path, options, what):
    mc.save(tmp_path, what, parity="pq", **options)
    mc.finish_saves()

    assert mc.list_checkpoints(tmp_path)[0].protected
    (health,) = mc.verify(tmp_path)
    assert health.ok
    assert not health.parity


@pytest.mark.parametrize("url", ["memory://parity-saves"])
def test_parity_works_in_memory_too(url):
    save(url, state(), parity="pq", overwrite=True)

    assert mc.list_checkpoints(url)[0].protected
    assert mc.repair(url).ok


def test_parity_goes_and_comes_back_with_its_checkpoint(tmp_path):
    save(tmp_path, state(), parity="pq")
    before = content(tmp_path)

    mc.delete(tmp_path, step=1)
    assert not folder(tmp_path).exists()
    mc.undelete(tmp_path, step=1)

    assert content(tmp_path) == before
    assert mc.list_checkpoints(tmp_path)[0].protected


def test_an_overwritten_checkpoint_leaves_no_parity_of_the_old_one(tmp_path):
    save(tmp_path, state(0), parity="pq")
    old = parity_files(tmp_path)
    save(tmp_path, state(1), overwrite=True, parity="xor")

    assert len(parity_files(tmp_path)) == 1
    assert not {*parity_files(tmp_path)} & {*old}
    save(tmp_path, state(2), overwrite=True)
    assert parity_files(tmp_path) == []
    mc.collect_garbage(tmp_path, graces=AT_ONCE)
    assert same(mc.load(tmp_path, verify="full"), state(2))


def test_parity_that_comes_too_late_for_its_version_is_not_put_there(tmp_path, monkeypatch):
    begin = threading.Event()
    made = protect.make_parity
    monkeypatch.setattr(protect, "make_parity", lambda *args: begin.wait(10) and made(*args))
    mc.save(tmp_path, state(0), step=1, parity="pq")
    monkeypatch.setattr(parity_writer._ParitySums, "write", _overwriting(tmp_path, parity_writer._ParitySums.write))
    begin.set()
    mc.finish_saves()

    assert parity_files(tmp_path) == []
    assert same(mc.load(tmp_path, verify="full"), state(1))
    mc.collect_garbage(tmp_path, graces=AT_ONCE)
    assert sorted(content(tmp_path)) == sorted(["manifest.json", *data_files(tmp_path)])


def _overwriting(root, write):
    """Replace the checkpoint while its parity is being made."""

    def both(self, streams):
        write(self, streams)
        mc.save(root, state(1), step=1, overwrite=True)

    return both


def test_removing_one_checkpoint_harms_neither_the_others_nor_their_parity(tmp_path):
    for step in (1, 2):
        save(tmp_path, {**state(), "step": step}, step, parity="pq", incremental=True)

    shutil.rmtree(folder(tmp_path, 1))

    for name in data_files(tmp_path, 2)[:2]:
        (folder(tmp_path, 2) / name).unlink()
    assert mc.repair(tmp_path).ok
    assert mc.load(tmp_path)["step"] == 2


def test_no_parity_is_made_of_damaged_bytes_and_the_failure_is_told(tmp_path, monkeypatch, caplog):
    made = protect.make_parity

    def damage_first(store, name):
        flip(folder(tmp_path) / data_files(tmp_path)[3], 5000)
        return made(store, name)

    monkeypatch.setattr(protect, "make_parity", damage_first)
    with caplog.at_level(logging.ERROR, "model_checkpoint"):
        mc.save(tmp_path, state(), step=1, parity="pq")
        chunks = stored_chunks(manifest_of(tmp_path).files[3])
        number = next(number for number, chunk in enumerate(chunks) if chunk.start <= 5000 < chunk.stop)
        with pytest.raises(errors.ProtectionFailed, match=rf"is saved and whole, but .* chunk {number} does not have"):
            mc.finish_saves()

    assert number > 0
    assert parity_files(tmp_path) == []
    assert "what was to follow failed" in caplog.text
    mc.finish_saves()  # told once


def test_a_failure_nobody_asked_for_is_a_warning_of_the_next_save(tmp_path, monkeypatch):
    def fail(*_):
        raise errors.StorageFailure("the disk is on fire")

    monkeypatch.setattr(protect, "make_parity", fail)
    job = mc.save_async(tmp_path, state(), step=1, parity="pq")
    job.result()
    for one in followups._under_way(None):
        one.over()
    monkeypatch.undo()

    told = r"step-00000001: is saved and whole, but .*the disk is on fire"
    with pytest.warns(mc.CheckpointWarning, match=told) as warned:
        mc.save(tmp_path, state(), step=2)

    assert [one.filename for one in warned] == [__file__]  # where the program saves
    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [2, 1]
    assert same(mc.load(tmp_path, step=1), state())


def test_a_failure_is_told_by_the_handle(tmp_path, monkeypatch):
    def fail(*_):
        raise errors.StorageFailure("no room")

    monkeypatch.setattr(protect, "make_parity", fail)
    job = mc.save_async(tmp_path, state(), step=1, parity="pq")

    with pytest.raises(errors.ProtectionFailed, match="no room"):
        job.wait_protected()
    assert job.result().step == 1
    mc.finish_saves()


def test_a_later_process_makes_the_parity_an_earlier_one_did_not_get_to(tmp_path, monkeypatch):
    monkeypatch.setattr(protect, "make_parity", lambda *_: 0)
    save(tmp_path, state(), parity="pq")
    monkeypatch.undo()
    protect._caught_up.clear()  # as a new process would
    assert not mc.list_checkpoints(tmp_path)[0].protected

    save(tmp_path, state(1), 2, parity="pq")

    assert [info.protected for info in mc.list_checkpoints(tmp_path)] == [True, True]


def test_verify_tells_of_damaged_and_missing_parity_but_the_checkpoint_is_healthy(tmp_path):
    save(tmp_path, state(), parity="pq")
    p, q = (folder(tmp_path) / name for name in parity_files(tmp_path))
    flip(p, 100)
    q.unlink()

    (health,) = mc.verify(tmp_path)

    assert health.ok
    assert [(damage.file, damage.chunk) for damage in health.parity] == [(q.name, None), (p.name, 0)]
    with pytest.raises(errors.StepExists, match="it is healthy, so it is kept"):
        mc.save(tmp_path, state(), step=1, overwrite="damaged")
    report = mc.repair(tmp_path)
    assert report.ok
    assert sorted(one.file for one in report.repaired) == [p.name, q.name]
    assert not mc.verify(tmp_path)[0].parity


@pytest.mark.parametrize("wrong", ["raid", True, 1, ""])
def test_an_unknown_scheme_is_refused_before_anything_is_done(tmp_path, wrong):
    with pytest.raises(errors.OptionInvalid, match=r'parity must be None, "xor" or "pq"'):
        mc.save(tmp_path / "new", state(), step=1, parity=wrong)
    assert not (tmp_path / "new").exists()


def test_a_forked_child_does_not_wait_for_the_parity_of_its_parent(tmp_path, monkeypatch):
    begin = threading.Event()
    made = protect.make_parity
    monkeypatch.setattr(protect, "make_parity", lambda *args: begin.wait(10) and made(*args))
    job = mc.save_async(tmp_path, state(), step=1, parity="xor")
    job.result()

    def work():
        monkeypatch.undo()
        mc.finish_saves()
        mc.save(tmp_path, state(2), step=2, parity="xor")
        mc.finish_saves()
        assert mc.list_checkpoints(tmp_path)[0].protected

    ended = in_child(work)
    begin.set()
    mc.finish_saves()

    assert ended == 0
    assert [info.protected for info in mc.list_checkpoints(tmp_path)] == [True, True]


def test_a_process_does_not_end_before_what_follows_its_saves(tmp_path):
    program = (
        "import pathlib, time\n"
        "from model_checkpoint.engine.jobs.followups import follow_up\n"
        "for name in 'ab':\n"
        f"    place = pathlib.Path({str(tmp_path)!r}, name)\n"
        "    follow_up('memory://x', 'memory://x/y', lambda p=place: (time.sleep(0.2), p.touch()))\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_what_failed_behind_the_last_save_is_told_when_the_process_ends():
    program = (
        "from model_checkpoint.engine.jobs.followups import follow_up\n"
        "def work():\n"
        "    raise OSError('the parity could not be written')\n"
        "follow_up('memory://x', 'memory://x/y', work)\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert "CheckpointWarning: memory://x/y" in ended.stderr
    assert "the parity could not be written" in ended.stderr.partition("CheckpointWarning")[2]


def test_without_the_wish_no_parity_is_made(tmp_path):
    info = save(tmp_path, state())

    assert parity_writer.make_parity(open_store(tmp_path), info.prefix) == 0
    assert not [file for file in content(tmp_path) if file.endswith(".parity")]
