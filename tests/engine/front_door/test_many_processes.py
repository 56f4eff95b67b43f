"""Many processes save to one root at once; each step is whole, and of two that want the same step one wins."""

import multiprocessing as mp

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.errors import StepExists

pytestmark = pytest.mark.slow


def save_steps(root, steps, value, results):
    for step in steps:
        try:
            mc.save(root, {"w": np.full(100_000, value, dtype=np.float32), "who": value}, step=step)
            results.put((step, value, "saved"))
        except StepExists:
            results.put((step, value, "exists"))


def run_all(root, jobs):
    context = mp.get_context("fork")
    results = context.Queue()
    team = [context.Process(target=save_steps, args=(root, steps, value, results)) for steps, value in jobs]
    for process in team:
        process.start()
    outcomes = [results.get(timeout=120) for steps, _ in jobs for _ in steps]
    for process in team:
        process.join()
    return outcomes


def test_different_steps_need_no_lock(tmp_path):
    jobs = [(range(i * 5, i * 5 + 5), i) for i in range(6)]

    outcomes = run_all(tmp_path, jobs)

    assert {outcome for _, _, outcome in outcomes} == {"saved"}
    assert len(mc.list_checkpoints(tmp_path)) == 30
    assert all(health.ok for health in mc.verify(tmp_path))
    assert not list((tmp_path / ".staging").iterdir())


def test_of_many_that_want_one_step_exactly_one_wins(tmp_path):
    outcomes = run_all(tmp_path, [([7], i) for i in range(12)])

    winners = [value for _, value, outcome in outcomes if outcome == "saved"]
    assert len(winners) == 1
    state = mc.load(tmp_path, step=7)
    assert state["who"] == winners[0]
    assert np.all(state["w"] == winners[0])


def test_overwriting_while_others_read_never_shows_a_torn_state(tmp_path):
    """One replacement runs beside each load, never two: a load reads the manifest anew once, no more."""
    mc.save(tmp_path, {"w": np.full(500_000, 0.0), "who": 0}, step=1)
    context = mp.get_context("fork")
    asked, done = context.Semaphore(0), context.Semaphore(0)
    writer = context.Process(target=overwrite, args=(tmp_path, 20, asked, done))
    writer.start()

    for turn in range(1, 21):
        asked.release()
        state = mc.load(tmp_path, step=1)
        assert done.acquire(timeout=120)
        assert state["who"] in (turn - 1, turn)
        assert np.all(state["w"] == state["who"])
    writer.join()

    assert writer.exitcode == 0
    assert mc.load(tmp_path, step=1)["who"] == 20


def overwrite(root, times, asked, done):
    for i in range(1, times + 1):
        asked.acquire()
        mc.save(root, {"w": np.full(500_000, float(i)), "who": i}, step=1, overwrite=True)
        done.release()
