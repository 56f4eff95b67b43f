"""Saved by hand, or left and looped over again, a run goes on where it was; what cannot be exact is named."""

import os
import random
import signal

import numpy as np
import pytest
import torch
from tests.ground.stored.stored_files import steps
from tests.integrations.loop.loop_training import Counting, Noisy, Shuffled
from torch.utils.data import DataLoader, TensorDataset

import model_checkpoint as mc
from model_checkpoint.errors import OptionInvalid

DATA = [1.0, 2.0, 3.0, 4.0]


def shuffled():
    return DataLoader(TensorDataset(torch.randn(20, 6)), 2, shuffle=True)


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Import what is imported late: that draws, too."""
    list(mc.Run("memory://warm", data=shuffled(), state={"a": 1}))


class Training:
    """A model whose body draws, steps, and works on after a save was asked for."""

    def __init__(self, root, *, make=None, accumulate=1, **options):
        for seed in (torch.manual_seed, random.seed, np.random.seed):
            seed(0)
        self.accumulate, self.model = accumulate, torch.nn.Sequential(torch.nn.Linear(6, 1), torch.nn.Dropout(0.5))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        data = (make or shuffled)()
        self.average = {"weight": torch.zeros(6)}
        trained = {"model": self.model, "optimizer": self.optimizer, "average": self.average}
        self.run = mc.Run(root, data=data, epochs=2, every=None, **trained, **options)

    def body(self, batch, *, ask=()):
        parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list) else [batch]
        self.model(torch.cat([one.view(-1, 6) for one in parts])).square().mean().backward()
        if self.run.step % self.accumulate == self.accumulate - 1:
            self.optimizer.step()
            self.optimizer.zero_grad()
        if self.run.step in ask:
            assert self.run.save() is None
        with torch.no_grad():
            self.average["weight"] += self.model[0].weight[0]
        random.random()

    def go(self, *, stop=None, ask=()):
        """To the end, or to the body of step ``stop``, left as a bug would leave it."""
        for batch in self.run:
            if self.run.step == stop:
                raise KeyError("a bug")
            self.body(batch, ask=ask)
        return self.told()

    def told(self):
        weights = [one.detach().numpy().tobytes() for one in [*self.model.parameters(), self.average["weight"]]]
        return weights, self.run.step, torch.rand(1).item(), random.random(), np.random.rand()


@pytest.mark.parametrize(("accumulate", "saved"), [(1, 5), (2, 6)])
def test_a_save_asked_for_in_a_body_is_made_at_the_next_boundary_where_it_may_be(tmp_path, accumulate, saved):
    whole = Training(tmp_path / "whole", accumulate=accumulate).go()

    with pytest.raises(KeyError, match="a bug"):
        Training(tmp_path / "cut", accumulate=accumulate).go(stop=8, ask=[4])
    assert steps(tmp_path / "cut") == [saved]
    resumed = Training(tmp_path / "cut", accumulate=accumulate)

    assert resumed.go() == whole
    assert (resumed.run.resumed_from, resumed.run.exact) == (saved, True)


def test_a_resumed_run_that_is_saved_before_its_first_batch_keeps_its_place(tmp_path):
    whole = Training(tmp_path / "whole").go()
    with pytest.raises(KeyError, match="a bug"):
        Training(tmp_path / "cut").go(stop=6, ask=[4])

    mc.finish_saves(tmp_path / "cut")
    Training(tmp_path / "cut").run.save().result()
    resumed = Training(tmp_path / "cut")

    assert resumed.go() == whole
    assert (resumed.run.resumed_from, resumed.run.exact) == (5, True)


def test_a_save_by_hand_between_bodies_tells_of_gradients_that_wait(tmp_path):
    def go(epochs):
        one = Training(tmp_path, make=lambda: [torch.ones(6)] * 3, accumulate=2)
        for batches in one.run.epochs():
            for batch in batches:
                one.body(batch)
            if one.run.epoch == epochs:
                one.run.save().result()
                break
        return one.run

    assert go(0).exact is True
    assert go(1).exact == ("it was saved with gradients that were not stepped, and they are lost",)


KINDS = {
    "a shuffled loader": shuffled,
    "a loader with workers": lambda: DataLoader(torch.randn(20, 6), 2, shuffle=True, num_workers=1),
    "a stream": lambda: DataLoader(Shuffled(), 8),
    "any iterable": Noisy,
    "data with a state": Counting,
    "several loaders": lambda: {"a": DataLoader(torch.randn(20, 6), 2, shuffle=True), "b": Noisy()},
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_loop_goes_on_in_the_same_program_as_if_it_had_not_been(tmp_path, kind):
    whole = Training(tmp_path / "whole", make=KINDS[kind]).go()
    one = Training(tmp_path / "again", make=KINDS[kind])

    def interrupted():
        for batch in one.run:
            one.body(batch)
            if one.run.step == 5:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):  # noqa: PT011
        interrupted()
    assert steps(tmp_path / "again") == [6]
    torch.rand(3)  # what is looked at in between

    assert one.go() == whole
    assert one.run.exact is True


def test_a_loop_that_was_left_in_a_body_goes_on_after_it_and_says_so(tmp_path):
    run, seen = mc.Run(tmp_path, data=DATA, epochs=2, state={"a": 1}), []
    for batch in run:
        seen.append(batch)
        if run.step == 2:
            break
    assert run.step == 3
    seen += list(run)

    assert seen == DATA * 2
    assert (run.step, run.epoch) == (8, 2)
    assert run.exact == ("the loop was left in the body of step 3, which counts as done",)
    assert mc.list_checkpoints(tmp_path)[0].metadata["run"]["exact"] is False


def test_a_loop_that_an_exception_still_holds_is_ended_by_the_next(tmp_path):
    before, held = signal.getsignal(signal.SIGTERM), []
    run = mc.Run(tmp_path, data=DATA, state={"a": 1})
    try:
        for _ in run:
            raise KeyError("a bug")
    except KeyError as error:
        held.append(error)

    assert list(run) == DATA[1:]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_run_that_was_left_can_be_saved_where_it_was_left(tmp_path):
    run = mc.Run(tmp_path, data=DATA, state={"a": 1})
    for _ in run:
        if run.step == 1:
            break
    run.save().result()

    again = mc.Run(tmp_path, data=DATA, state={"a": 1})
    assert again.resumed_from == 2
    assert list(again) == DATA[2:]


def test_a_loop_of_epochs_that_was_left_at_the_end_of_one_repeats_only_the_work_there(tmp_path):
    run, ends = mc.Run(tmp_path, data=DATA, epochs=2, state={"a": 1}), []
    for batches in run.epochs():
        list(batches)
        break
    for batches in run.epochs():
        ends.append((run.epoch, list(batches)))

    assert ends == [(0, []), (1, DATA)]
    assert run.exact is True


def test_an_epoch_may_be_left_before_its_end(tmp_path):
    run, seen = mc.Run(tmp_path, data=DATA, epochs=2, state={"a": 1}), []
    for batches in run.epochs():
        for batch in batches:
            if batch > 2:
                break
            seen.append(batch)
        run.save()

    assert seen == [1.0, 2.0] * 2
    assert steps(tmp_path) == [2, 4]
    assert run.exact is True


def test_two_loops_over_one_run_at_once_are_refused(tmp_path):
    run = mc.Run(tmp_path, data=DATA, state={"a": 1})

    def nested():
        for _ in run:
            list(run)

    with pytest.raises(OptionInvalid, match="another loop over this run began in a body of this one"):
        nested()


def test_an_interrupted_loop_is_the_same_experiment_when_it_goes_on(tmp_path, url, catalog):
    run = mc.Run(tmp_path / "a", data=DATA, epochs=2, catalog=url, state={"a": 1})

    def interrupted():
        for batch in run:
            run.log(loss=batch)
            if run.step == 2:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):  # noqa: PT011
        interrupted()
    for batch in run:
        run.log(loss=batch)

    [row] = catalog.list_experiments().items
    assert (row.status, row.step) == ("completed", 8)
    assert [point.step for point in catalog.get_metrics(row.id, "loss")] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [one.step for one in catalog.get_checkpoints_by_experiment(row.id)] == [8, 3]
