"""Ctrl-C: the command ends with 130, says nothing of Python, and leaves nothing half-done."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.ground.stored.stored_files import data_file, flip

import model_checkpoint as mc
from model_checkpoint.database import IntegrityRecord, open_catalog

# the command, interrupted as by a person at the moment it calls a named function for the nth time
PROBE = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
home, name, at = sys.argv[1].rsplit(".", 1)[0], sys.argv[1].rsplit(".", 1)[1], int(sys.argv[2])
from importlib import import_module
module, seen = import_module(home), []
real = getattr(module, name)
def watched(*args, **options):
    seen.append(1)
    if len(seen) == at:
        signal.raise_signal(signal.SIGINT)
    return real(*args, **options)
setattr(module, name, watched)
sys.argv = ["mckpt", *sys.argv[3:]]
from model_checkpoint.cli.main import answer
answer()
"""

# the same, but just behind that call: what it did is done, and nobody was told
BEHIND = PROBE.replace("    return real(*args, **options)", "    return done").replace(
    "    seen.append(1)", "    seen.append(1)\n    done = real(*args, **options)"
)


def interrupted(where, at, *words, behind=False):
    probe = BEHIND if behind else PROBE
    command = [sys.executable, "-c", probe, where, str(at), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done
    return done


def everything(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


@pytest.fixture
def root(tmp_path):
    for step in range(1, 6):
        mc.save(tmp_path / "run", {"w": np.arange(9.0), "b": np.zeros(3)}, step=step)
    return tmp_path / "run"


@pytest.mark.parametrize("options", [(), ("--folder", "--parts", "w")])
def test_an_export_is_there_or_not(root, tmp_path, options):
    mc.save(root, {"w": {"a": np.ones(3), "b": np.ones(3)}}, step=9)
    before = everything(tmp_path)

    interrupted("model_checkpoint.engine.reading.export._rows_of", 2, "export", root, tmp_path / "out", *options)

    assert everything(tmp_path) == before


def test_a_trial_is_cleared(root, tmp_path):
    before = everything(tmp_path)

    interrupted("model_checkpoint.cli.checkup.trial.load", 1, "bench", root, "--size", "1MiB")

    assert everything(tmp_path) == before


def test_a_prune_moves_whole_checkpoints_and_the_same_command_goes_on(root, mckpt):
    interrupted("model_checkpoint.checkpoint.retention.carry_out.discard_exactly", 3, "prune", root, "--keep", "last:1")

    assert [info.step for info in mc.list_checkpoints(root)] == [5, 4, 3]
    assert all(health.ok for health in mc.verify(root))
    assert mckpt("prune", root, "--keep", "last:1").code == 0
    assert [info.step for info in mc.list_checkpoints(root)] == [5]


def test_reading_verbs_just_end(root):
    done = interrupted("model_checkpoint.engine.reading.verify._examine", 2, "verify", root)

    assert done.stdout == ""


def test_a_repair_leaves_every_file_as_it_was_or_right(tmp_path, mckpt):
    root = tmp_path / "run"
    mc.save(root, {"w": np.arange(1 << 20, dtype=np.float64)}, step=1, parity="xor")
    mc.finish_saves()
    flip(data_file(root))
    before = everything(root)

    interrupted("model_checkpoint.engine.repairing.rebuild._chunk", 2, "repair", root)

    assert everything(root) == before
    assert mckpt("repair", root).code == 0
    assert all(health.ok for health in mc.verify(root))


def test_an_adoption_has_whole_checkpoints_only_and_the_same_command_goes_on(tmp_path, mckpt):
    torch = pytest.importorskip("torch")
    for step in (1, 2, 3):
        torch.save({"w": torch.ones(step)}, tmp_path / f"step-{step}.pt")

    interrupted("model_checkpoint.convert.adopting.save_imported", 3, "adopt", tmp_path, tmp_path / "new")

    assert [info.step for info in mc.list_checkpoints(tmp_path / "new")] == [2, 1]
    assert all(health.ok for health in mc.verify(tmp_path / "new"))
    assert mckpt("adopt", tmp_path, tmp_path / "new").code == 0
    assert len(mc.list_checkpoints(tmp_path / "new")) == 3


def test_a_removal_of_several_moves_whole_checkpoints_and_tells_the_catalog_of_them(root, mckpt):
    assert mckpt("reindex", root).code == 0

    interrupted("model_checkpoint.engine.root.delete.delete", 3, "rm", *(f"{root}@{step}" for step in (1, 2, 3)))

    assert [info.step for info in mc.list_checkpoints(root)] == [5, 4, 3]
    assert all(health.ok for health in mc.verify(root))
    with open_catalog(f"sqlite:///{root}/catalog.db") as db:
        (run,) = db.list_experiments().items
        assert sorted(row.step for row in db.get_checkpoints_by_experiment(run.id)) == [3, 4, 5]


def test_a_restoration_happened_or_not(root, mckpt):
    mckpt("rm", f"{root}@2")

    interrupted("model_checkpoint.engine.root.delete.undelete", 1, "restore", f"{root}@2")

    assert [info.step for info in mc.list_checkpoints(root)] == [5, 4, 3, 1]
    assert mckpt("restore", f"{root}@2").code == 0
    assert all(health.ok for health in mc.verify(root))


@pytest.mark.parametrize("words", [("pin", "{}@2"), ("tag", "{}@2", "paper"), ("note", "{}@2", "words")], ids=str)
def test_a_mark_that_is_on_the_root_is_told_to_the_catalog(root, mckpt, words):
    assert mckpt("reindex", root).code == 0

    where = f"model_checkpoint.engine.root.marking.{words[0]}"
    interrupted(where, 1, *(word.format(root) for word in words), behind=True)

    (info,) = [one for one in mc.list_checkpoints(root) if one.step == 2]
    with open_catalog(f"sqlite:///{root}/catalog.db") as db:
        row = db.get_checkpoint(info.id)
    marks = (info.pinned, list(info.tags), info.note)
    assert marks != (False, [], "")
    assert (row.pinned, list(row.tags), row.notes) == marks


def test_a_restoration_that_happened_is_told_to_the_catalog(root, mckpt):
    assert mckpt("reindex", root).code == 0
    assert mckpt("rm", f"{root}@2").code == 0

    interrupted("model_checkpoint.engine.root.delete.undelete", 1, "restore", f"{root}@2", behind=True)

    (info,) = [one for one in mc.list_checkpoints(root) if one.step == 2]
    with open_catalog(f"sqlite:///{root}/catalog.db") as db:
        assert db.get_checkpoint(info.id).state == "committed"


def test_a_repair_that_was_broken_off_after_it_mended_is_told_by_the_next(tmp_path, mckpt):
    root = tmp_path / "run"
    info = mc.save(root, {"w": np.arange(1 << 10, dtype=np.float64)}, step=1, parity="xor")
    mc.finish_saves()
    flip(data_file(root))
    assert mckpt("reindex", root).code == 0
    with open_catalog(f"sqlite:///{root}/catalog.db") as db:
        db.record_integrity(IntegrityRecord(checkpoint_id=info.id, outcome="damaged", method="full"))

    interrupted("model_checkpoint.engine.repairing.repair.repair", 1, "repair", root, behind=True)
    assert mckpt("repair", root).code == 0

    with open_catalog(f"sqlite:///{root}/catalog.db") as db:
        assert db.get_checkpoint(info.id).health == "healthy"


def test_of_a_clearing_that_was_broken_off_nothing_half_comes_back_and_the_same_command_goes_on(root, mckpt):
    for step in (1, 2, 3):
        mckpt("rm", f"{root}@{step}")

    interrupted("model_checkpoint.storage.local.trash.remove_tree", 2, "gc", root, "--trash")

    assert mckpt("trash", root, "--json").out == "[]\n"
    assert len(list((root / ".trash").iterdir())) == 2
    assert [info.step for info in mc.list_checkpoints(root)] == [5, 4]
    assert mckpt("gc", root, "--trash").code == 0
    assert not list((root / ".trash").iterdir())


def test_a_reindexing_that_was_broken_off_is_made_whole_by_the_next(root, mckpt):
    interrupted("model_checkpoint.checkpoint.catalog.reindexing.row_of", 3, "reindex", root)

    assert json.loads(mckpt("reindex", root, "--json").out)["checkpoints"] == 5
    with open_catalog(f"sqlite:///{root}/catalog.db") as db:
        (run,) = db.list_experiments().items
        assert sorted(row.step for row in db.get_checkpoints_by_experiment(run.id)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("where", "to"),
    [
        ("model_checkpoint.engine.writing.save_plan.compose", "native"),
        ("model_checkpoint.convert.targets.torch_export.typed_errors", "pt"),
        ("model_checkpoint.engine.reading.export._rows_of", "safetensors"),
    ],
)
def test_a_conversion_is_there_or_not(root, tmp_path, mckpt, where, to):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(2)}, tmp_path / "step-7.pt")
    words = ("convert", tmp_path / "step-7.pt" if to == "native" else f"{root}@2", tmp_path / "out", "--to", to)

    interrupted(where, 1, *words)

    assert not [path for path in everything(tmp_path) if path.parts[0].startswith("out") and path.suffix]
    assert mckpt(*words).code == 0
    assert (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_real_interrupt_from_outside_ends_it_within_a_moment(tmp_path):
    mc.save(tmp_path / "run", {"w": np.random.default_rng(0).random(1 << 24)}, step=1)
    command = [
        sys.executable,
        "-c",
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from model_checkpoint.cli.main import run; run()",
        "bench",
        str(tmp_path / "run"),
        "--rounds",
        "100",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not list((tmp_path / "run").glob(".bench-*/checkpoints/*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)

    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, b"")
    assert not list((tmp_path / "run").glob(".bench-*"))
