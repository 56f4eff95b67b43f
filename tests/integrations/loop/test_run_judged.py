"""What a checkpoint is told of its own weights, and by that the best of a run."""

import numpy as np
import pytest
from tests.ground.stored.stored_files import steps

import model_checkpoint as mc

DATA = [1.0, 2.0, 3.0, 4.0]


def told(root):
    """The metrics of each checkpoint."""
    mc.finish_saves(root)
    return {one.step: one.metrics for one in mc.list_checkpoints(root)}


def go(root, *, judged=(), stop=None, **options):
    """Count bodies; log a loss in each, and after some of them how good the weights are."""
    state = {"bodies": np.zeros(())}
    run = mc.Run(root, data=DATA, epochs=3, state=state, **{"every": 5, **options})
    for _ in run:
        if run.step == stop:
            raise KeyError("a bug")
        state["bodies"] += 1
        run.log(loss=run.step)
        if run.step + 1 in judged:
            run.log(val_loss=0.1 * abs(run.step + 1 - 7))  # best at step 7
    return run


def test_a_checkpoint_is_told_only_what_was_logged_of_its_own_step(tmp_path):
    run = go(tmp_path, judged=[5, 7])

    assert told(tmp_path) == {5: {"loss": 4.0, "val_loss": pytest.approx(0.2)}, 10: {"loss": 9.0}, 12: {"loss": 11.0}}
    assert run.metrics == {"loss": 11.0, "val_loss": 0.0}  # the last under each name


def test_weights_that_a_keeper_may_choose_are_saved_where_they_were_judged(tmp_path):
    go(tmp_path, judged=[3, 7, 9], keep=[mc.best("val_loss"), mc.last(1)])

    assert steps(tmp_path) == [7, 12]
    assert mc.load(tmp_path, best="val_loss")["state"]["bodies"] == 7
    assert "val_loss" not in told(tmp_path)[12]


def test_an_evaluation_at_the_end_of_an_epoch_is_of_the_weights_there(tmp_path):
    run, ends = None, []

    def train(leave=None):
        nonlocal run
        run = mc.Run(tmp_path, data=DATA, epochs=3, every=None, keep=[mc.best("val_loss", 3)], state={"a": 1})
        for batches in run.epochs():
            for _ in batches:
                if run.step == leave:
                    return
            ends.append(run.epoch)
            run.log(val_loss=1.0 / run.step)

    train(leave=5)
    assert told(tmp_path) == {4: {"val_loss": 0.25}}
    train()

    assert ends == [0, 1, 2]  # the work at the end of the first is not repeated
    assert told(tmp_path) == {4: {"val_loss": 0.25}, 8: {"val_loss": 0.125}, 12: {"val_loss": pytest.approx(1 / 12)}}


def test_a_metric_that_is_logged_in_every_body_asks_for_no_saves(tmp_path):
    with pytest.raises(KeyError, match="a bug"):
        go(tmp_path, keep=[mc.best("loss", 9)], stop=7)
    mc.finish_saves(tmp_path)
    run = go(tmp_path, keep=[mc.best("loss", 9)])

    assert run.resumed_from == 5
    assert steps(tmp_path) == [5, 10, 12]


def test_a_metric_with_a_name_of_signs_is_judged_by_too(tmp_path):
    run = mc.Run(tmp_path, data=DATA, keep=[mc.best("val/loss")], state={"a": 1})
    for _ in run:
        if run.step == 2:
            run.log(**{"val/loss": 0.5})

    assert told(tmp_path) == {3: {"val/loss": 0.5}, 4: {}}


def test_what_was_logged_comes_back_with_the_rest(tmp_path):
    with pytest.raises(KeyError, match="a bug"):
        go(tmp_path, judged=[2], stop=6)
    mc.finish_saves(tmp_path)

    resumed = mc.Run(tmp_path, data=DATA, epochs=3, state={"bodies": np.zeros(())})
    assert resumed.metrics == {"loss": 4.0, "val_loss": 0.5}
