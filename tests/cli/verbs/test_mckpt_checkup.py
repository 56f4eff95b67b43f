"""`mckpt doctor` and `mckpt bench`."""

import json
import os
import sys

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.cli.checkup import root_checks
from model_checkpoint.cli.checkup.diagnosis import Grade
from model_checkpoint.cli.checkup.examine import examine
from model_checkpoint.cli.checkup.torch_trial import PATIENCE, TorchTrial
from model_checkpoint.cli.checkup.trial import measure, require_room
from model_checkpoint.errors import DiskFull, OptionInvalid


@pytest.fixture
def root(tmp_path):
    mc.save(tmp_path / "run", {"w": np.zeros(300)}, step=1)
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def quick_torch(tmp_path_factory, monkeypatch):
    """A torch that loads at once: every look loads it in a process of its own."""
    folder = tmp_path_factory.mktemp("lib")
    (folder / "torch.py").write_text("__version__ = '0'\nclass cuda: is_available = staticmethod(lambda: False)\n")
    monkeypatch.syspath_prepend(folder)


def about(found, topic):
    return [one for one in found if one.topic == topic]


def test_a_healthy_root_gets_a_clean_bill(root, mckpt):
    done = mckpt("doctor", root)

    assert (done.code, "0 bad" in done.out) == (0, True)
    for topic in ("checkpoints", "file system", "permissions", "room", "leftovers", "clock", "catalog", "torch"):
        assert topic in done.out


def test_looking_changes_nothing(root, mckpt):
    def everything():
        return sorted((path, os.stat(path).st_mtime_ns) for path in root.parent.rglob("*"))

    before = everything()
    mckpt("doctor", root)
    mckpt("doctor", root.parent / "none")

    assert everything() == before


def test_damage_leftovers_and_a_prune_cut_off_come_with_their_cures(root, mckpt):
    mc.save(root, {"w": np.zeros(300)}, step=2)
    (root / "checkpoints/step-00000001/manifest.json").write_bytes(b"noise")

    done = mckpt("doctor", root, "--json")

    assert done.code == 1
    (found,) = [one for one in json.loads(done.out) if one["grade"] == "bad"]
    assert found["said"] == "1 of 2 checkpoints cannot be used, first step-00000001"
    assert found["cure"] == f"mckpt verify {root}, then mckpt repair {root}"


def test_what_is_gone_with_the_power_is_bad(tmp_path, monkeypatch, root):
    kinds = {"tmpfs": Grade.BAD, "overlay": Grade.NOTE, "ext4": Grade.GOOD}
    for kind, grade in kinds.items():
        monkeypatch.setattr(root_checks, "mount_of", lambda path, kind=kind: ("/", kind, ("rw",)))
        assert [one.grade for one in about(examine(str(root)), "file system")] == [grade]
    monkeypatch.setattr(root_checks, "mount_of", lambda path: ("/", "ext4", ("ro",)))
    assert "remount" in about(examine(str(root)), "file system")[0].cure


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no file system in memory")
def test_the_kind_of_a_real_mount_is_seen():
    assert root_checks.mount_of("/dev/shm/anything")[:2] == ("/dev/shm", "tmpfs")


def test_a_clock_that_goes_ahead_is_seen(root, monkeypatch):
    monkeypatch.setattr(root_checks.time, "time", lambda: 1_000_000_000.0)

    (found,) = about(examine(str(root)), "clock")

    assert (found.grade, "NTP" in found.cure) == (Grade.BAD, True)


def test_a_missing_root_and_a_database_that_is_away_are_told(tmp_path, mckpt):
    done = mckpt("doctor", tmp_path / "none", "--database", "postgresql://127.0.0.1:1/none?connect_timeout=1")

    assert done.code == 1
    assert "there is no such root" in done.out
    assert "start the server or correct --database" in done.out
    assert not (tmp_path / "none").exists()


def test_parts_that_are_not_compiled_are_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "model_checkpoint.format._galois", None)

    (found,) = about(examine(), "compiled parts")

    assert (found.grade, "parity run without" in found.said) == (Grade.NOTE, True)


def test_a_trial_measures_and_leaves_nothing_behind(root, mckpt):
    before = sorted(root.parent.rglob("*"))

    done = mckpt("bench", root, "--size", "2MiB", "--rounds", "1")

    assert done.code == 0
    for word in ("write", "save", "load", "verify", "holds training up"):
        assert word in done.out
    assert sorted(root.parent.rglob("*")) == before


def test_a_trial_that_fails_leaves_nothing_behind(tmp_path):
    with pytest.raises(RuntimeError, match="enough"):
        measure(f"{tmp_path}/new/run", 1 << 20, rounds=3, tell=fail_at("round 2: load"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DiskFull, match="Give a smaller --size"):
        require_room(str(tmp_path), 1 << 60)
    with pytest.raises(OptionInvalid, match="at least 1 MB"):
        measure(str(tmp_path), 10, rounds=1, tell=lambda text: None)


def fail_at(moment):
    def tell(text):
        if text == moment:
            raise RuntimeError("enough")

    return tell


BROKEN = {
    "raise ImportError('libcudart.so.12: cannot open shared object file')": "cannot be imported: libcudart.so.12",
    "raise AttributeError('module numpy has no attribute bool')": "cannot be imported: module numpy has no",
    "import os; os.abort()": "it ended the process with SIGABRT",
    "import os; os._exit(7)": "it ended the process with exit code 7",
    "import time; time.sleep(600)": "was not loaded within 3 s",
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_torch_that_cannot_be_loaded_is_a_finding_and_not_the_end(source, tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    with TorchTrial(patience=3.0 if "sleep" in source else PATIENCE) as trial:
        found = trial.result()

    assert (found.grade, found.cure) == (Grade.BAD, "pip install --force-reinstall torch")
    assert found.said.startswith("is installed, but ")
    assert BROKEN[source] in found.said


def test_a_torch_that_prints_and_a_file_of_that_name_where_one_stands_change_nothing(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "torch.py").write_text(
        "print('hello')\n__version__ = '9.9'\nclass version: cuda = '12.4'\n"
        "class cuda: is_available, device_count = staticmethod(lambda: True), staticmethod(lambda: 4)\n"
    )
    (tmp_path / "torch.py").write_text("raise ImportError('not me')")
    monkeypatch.syspath_prepend(tmp_path / "lib")
    monkeypatch.chdir(tmp_path)

    with TorchTrial() as trial:
        assert (trial.result().grade, trial.result().said) == (Grade.GOOD, "9.9, CUDA 12.4, 4 devices")
