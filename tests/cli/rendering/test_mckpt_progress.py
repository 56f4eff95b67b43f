"""Long work tells how far it has come: to programs by a callable, to people by a bar that ends where the work does."""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.cli.rendering.terminals import on_terminal
from tests.ground.stored.stored_files import data_file, flip

import model_checkpoint as mc
from model_checkpoint.checkpoint.catalog.reindexing import reindex
from model_checkpoint.convert import adopt, convert
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.engine.reading.export import export_file, export_folder
from model_checkpoint.options import Graces

STEPS = (1, 2, 3)


@pytest.fixture
def root(tmp_path):
    """Three checkpoints of two parts, protected by parity."""
    for step in STEPS:
        model = {"a": torch.arange(3000.0) + step, "b": torch.ones(2, 7)}
        mc.save(tmp_path / "run", {"model": model, "optimizer": {"m": np.full(40, step)}}, step=step, parity="xor")
    mc.finish_saves()
    return tmp_path / "run"


def reindexed(root, progress):
    with EnhancedDatabaseConnection("sqlite://") as connection:
        reindex(root, connection, progress=progress)


def adopted(root, progress):
    for step in STEPS:
        torch.save({"w": torch.ones(10 * step)}, root.parent / f"step-{step}.pt")
    adopt(root.parent, root.parent / "new", progress=progress)


def imported(root, progress):
    torch.save({"model": {"w": torch.ones(10)}}, root.parent / "theirs.pt")
    convert(root.parent / "theirs.pt", root.parent / "new", progress=progress)


def repaired(root, progress):
    flip(data_file(root, 2))
    assert mc.repair(root, progress=progress).repaired


def swept(root, progress):
    for step in (1, 2):
        mc.delete(root, step=step)
    assert mc.collect_garbage(root, graces=Graces(trash=0.0), progress=progress).trashed


WORK = {
    "verify": lambda root, progress: mc.verify(root, progress=progress),
    "diff": lambda root, progress: mc.diff(f"{root}@1", f"{root}@3", progress=progress),
    "repair": repaired,
    "export": lambda root, progress: export_file(root, root / "out.safetensors", progress=progress),
    "export-folder": lambda root, progress: export_folder(root, root / "out", progress=progress),
    "convert-dcp": lambda root, progress: convert(root, root / "out", to="dcp", progress=progress),
    "convert-pt": lambda root, progress: convert(root, root / "out.pt", to="pt", progress=progress),
    "convert-hf": lambda root, progress: convert(root, root / "out", to="hf", progress=progress),
    "convert-native": imported,
    "adopt": adopted,
    "reindex": reindexed,
    "gc": swept,
    "prune": lambda root, progress: mc.prune(root, [mc.last(1)], progress=progress),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_what_is_done_rises_to_all_there_is_to_do(root, work):
    seen = []

    work(root, seen.append)

    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert seen[-1].done == seen[-1].total > 0
    assert all(one.done <= one.total for one in seen)


def test_a_person_sees_a_bar_and_it_goes_when_the_work_is_done(root, tmp_path):
    flip(data_file(root, 2))
    calls = [
        (("repair", root), r"examining .* of [\d.]+ (kB|bytes)"),
        (("export", root, tmp_path / "out.safetensors"), r"exporting .* of [\d.]+ (kB|bytes)"),
        (("diff", f"{root}@1", f"{root}@3"), r"comparing .* of [\d.]+ (kB|bytes)"),
        (("reindex", root), "reindexing .* of 3 checkpoints"),
        (("prune", root, "--keep", "last:1"), "dropping .* of 2 checkpoints"),
        (("show", root, "--tensors"), r"reading .* of [\d.]+ (kB|bytes)"),
        (("bench", root, "--size", "1MB", "--rounds", "1"), r"(?s)measuring.*round 1: save in the background"),
        (("gc", root, "--trash"), r"removing .*\b(\d+) of \1 leavings"),
    ]
    for words, bar in calls:
        _, text = on_terminal(100, *map(str, words))
        assert re.search(bar, text), text
        assert "\x1b[2K" in text  # the line of the bar is taken back


WHOLE = r"{} .*\b([\d.]+ (?:kB|bytes)) of \1"  # the last thing a bar shows


def long_calls(root):
    """Verbs that read or write every byte, and what their bars are called."""
    theirs = root.parent / "theirs"
    if not theirs.exists():
        theirs.mkdir()
        export_file(root, theirs / "step-5.safetensors")
    return [
        (("verify", root), "verifying"),
        (("convert", theirs / "step-5.safetensors", root.parent / "from"), "saving"),
        (("convert", root, root.parent / "hf", "--to", "hf"), "converting"),
        (("adopt", theirs, root.parent / "adopted"), "adopting"),
    ]


def test_bars_of_work_on_every_byte_end_full_on_a_terminal_and_are_not_there_in_a_pipe(root):
    for words, title in long_calls(root):
        code, text = on_terminal(100, *map(str, words))
        assert code == 0, text
        assert re.search(WHOLE.format(title), text), text
        assert "\x1b[2K" in text

    shutil.rmtree(root.parent / "from")
    for words, title in long_calls(root)[:2]:
        done = subprocess.run(
            [sys.executable, "-m", "model_checkpoint", *map(str, words)], capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        assert title not in done.stdout
        assert "\x1b" not in done.stdout
