"""What a run tells: at its start, and on a terminal while it goes."""

import contextlib
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from torch.utils.data import DataLoader, IterableDataset

import model_checkpoint as mc

DATA = [1.0, 2.0, 3.0, 4.0]


class Stream(IterableDataset):
    """Something that can only be read from its beginning."""

    def __iter__(self):
        return iter(DATA)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DataLoader(Stream(), 2), "an IterableDataset has no state: the epoch is read again up to the place"),
        (Stream, "the data has no state: the epoch is read again up to the place"),
        (lambda: {"a": DATA, "b": Stream()}, "b: the data has no state: the epoch is read again up to the place"),
        (lambda: DATA, ""),
    ],
)
def test_that_data_must_be_read_again_is_said_at_the_start(tmp_path, make, said):
    for _ in (run := mc.Run(tmp_path, data=make(), every=1, state={"a": 1})):
        if run.step == 1:
            break
    mc.finish_saves(tmp_path)

    opening = mc.Run(tmp_path, data=make(), every=1, state={"a": 1}).opening
    assert opening.partition("step-00000001")[2] == (f"; {said}" if said else "")


def test_a_bar_shows_step_loss_time_to_the_next_save_and_stall(tmp_path):
    program = """
        import time, model_checkpoint as mc
        for _ in (run := mc.Run("run", data=range(40), every=30, state={"a": 1})):
            run.log(loss=0.125)
            time.sleep(0.02)
        """
    ours, theirs = os.openpty()
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stderr=theirs, cwd=tmp_path)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal ends with the program
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)

    assert child.wait() == 0
    assert b"run: a new run" in shown
    assert re.search(rb"loss 0\.125  save in \d+ s  stall \d+ ms", shown)
    assert re.search(rb"\d\d/40", shown)


def test_another_version_is_named_as_a_reason(tmp_path, monkeypatch):
    for _ in (run := mc.Run(tmp_path, data=DATA, every=1, state={"a": 1})):
        if run.step == 1:
            break
    mc.finish_saves(tmp_path)
    before = np.__version__
    monkeypatch.setattr(np, "__version__", "9.1")

    run = mc.Run(tmp_path, data=DATA, every=1, state={"a": 1})
    assert run.exact == (f"the version of NumPy was {before}, is 9.1",)
    assert f"not bit for bit: the version of NumPy was {before}, is 9.1" in run.opening


@pytest.mark.parametrize("progress", [None, False])
def test_a_run_says_what_it_goes_on_from_where_there_is_no_terminal_either(tmp_path, capsys, progress):
    for _ in range(2):
        run = mc.Run(tmp_path, data=DATA, epochs=2, every=3, progress=progress, state={"a": 1})
        for batch in run:
            if batch == 4.0:
                break
        mc.finish_saves(tmp_path)

    said = f"{tmp_path}: a new run\n{run.opening}\n"
    assert capsys.readouterr().err == ("" if progress is False else said)
    assert "resumed at step 3 (epoch 0, batch 3) from " in run.opening


def test_what_is_seen_only_where_the_loop_begins_is_said_there(tmp_path, capsys):
    def go(stop=None):
        phase = 0
        for _ in (run := mc.Run(tmp_path, data=DATA, epochs=2, every=2, state={"a": 1})):
            if run.step == stop:
                mc.finish_saves(tmp_path)
                return
            phase = phase + 1

    go(stop=5)
    assert "not bit for bit" not in capsys.readouterr().err
    go()

    assert capsys.readouterr().err.count(f"{tmp_path}: not bit for bit: `phase` was 4 when it was saved, is 0") == 1
