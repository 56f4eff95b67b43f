"""Progress: the same three ways for every operation, and silence unless asked."""

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.engine.background.save_async import save_async

STATE = {"w": np.arange(3 << 20, dtype=np.float32), "epoch": 3}

OPERATIONS = {
    "save": lambda root, progress: mc.save(root, STATE, step=1, progress=progress),
    "save_async": lambda root, progress: save_async(root, STATE, step=2, progress=progress).result(),
    "load": lambda root, progress: mc.load(root, progress=progress),
    "verify": lambda root, progress: mc.verify(root, progress=progress),
}


@pytest.mark.parametrize("operation", ["save_async", "load", "verify"])
def test_a_callback_hears_of_every_byte_once(tmp_path, operation):
    OPERATIONS["save"](tmp_path, None)
    events = []

    OPERATIONS[operation](tmp_path, events.append)

    assert events
    assert {event.operation for event in events} == {operation.removesuffix("_async")}
    assert events[-1].done == events[-1].total >= STATE["w"].nbytes
    assert [event.done for event in events] == sorted(event.done for event in events)
    assert events[-1].rate > 0


@pytest.mark.parametrize("progress", [None, False, True], ids=["none", "false", "true"])
def test_only_true_shows_a_bar_and_only_on_the_error_stream(tmp_path, capsys, monkeypatch, progress):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a bar is drawn only where somebody can see it

    for work in OPERATIONS.values():
        work(tmp_path, progress)

    out, err = capsys.readouterr()
    assert out == ""
    assert bool(err) is (progress is True)
    for word in ("saving", "loading", "verifying"):
        assert (word in err) is (progress is True)
