"""The loop: what it says, saves, resumes and refuses."""

import os
import random
import signal
import threading

import numpy as np
import pytest
import torch
from tests.ground.stored.stored_files import data_file, flip, steps
from torch.utils.data import DataLoader, TensorDataset

import model_checkpoint as mc
from model_checkpoint.engine.root.run_position import run_position
from model_checkpoint.errors import OptionInvalid, StructureMismatch

DATA = [1.0, 2.0, 3.0, 4.0]


def go(root, *, stop=None, epochs=1, **options):
    """Add up what comes; end in the body of step ``stop``, as an exception would."""
    total = {"sum": np.zeros(())}
    run = mc.Run(root, data=DATA, epochs=epochs, total=total, **options)
    for batch in run:
        if run.step == stop:
            raise KeyError("a bug")
        total["sum"] += batch
        run.log(sum=total["sum"])
    return run, float(total["sum"])


def test_saves_come_every_so_many_bodies_and_at_the_end(tmp_path):
    run, total = go(tmp_path, epochs=3, every=5)

    assert (run.step, run.epoch, total) == (12, 3, 30.0)
    assert steps(tmp_path) == [5, 10, 12]
    assert mc.load(tmp_path)["total"]["sum"] == 30.0
    assert mc.list_checkpoints(tmp_path)[0].metrics == {"sum": 30.0}


def test_an_exception_saves_nothing_half_done_and_the_run_goes_on_from_the_newest_save(tmp_path):
    with pytest.raises(KeyError, match="a bug"):
        go(tmp_path, epochs=3, every=5, stop=8)
    assert steps(tmp_path) == [5]

    run, total = go(tmp_path, epochs=3, every=5)

    assert (run.resumed_from, run.step, total) == (5, 12, 30.0)
    assert "resumed at step 5 (epoch 1, batch 1)" in run.opening


def test_a_finished_run_has_nothing_left_to_do_and_goes_on_with_more_epochs(tmp_path):
    go(tmp_path, epochs=1)
    _, again = go(tmp_path, epochs=1)
    run, more = go(tmp_path, epochs=2)

    assert (again, more) == (10.0, 20.0)
    assert (run.resumed_from, run.step) == (4, 8)


def test_what_follows_a_finished_run_draws_the_same_when_it_is_started_again(tmp_path):
    def drawn():
        random.seed(1)
        for _ in mc.Run(tmp_path, data=DATA, state={"a": 1}):
            random.random()
        return random.random()

    first = drawn()
    assert drawn() == first


def test_only_what_a_keeper_claims_stays(tmp_path):
    go(tmp_path, epochs=3, every=2, keep=[mc.last(2), mc.every(6)])

    assert steps(tmp_path) == [2, 6, 10, 12]
    assert not mc.undelete(tmp_path, step=4).problem  # for an hour it can be brought back


def test_a_metric_that_was_not_logged_yet_lets_all_stay(tmp_path):
    go(tmp_path, epochs=2, every=2, keep=[mc.best("val_loss")])

    assert steps(tmp_path) == [2, 4, 6, 8]


def test_without_every_a_run_saves_at_its_end_alone(tmp_path):
    go(tmp_path, epochs=2, every=None)

    assert steps(tmp_path) == [8]


def test_work_at_the_end_of_the_last_epoch_is_in_the_last_checkpoint(tmp_path):
    state = {"sum": 0.0, "ends": 0}
    for batches in (run := mc.Run(tmp_path, data=DATA, epochs=2, every=4, state=state)).epochs():
        for batch in batches:
            state["sum"] += batch
        state["ends"] += 1

    assert run.step == 8
    assert mc.load(tmp_path)["state"] == {"sum": 20.0, "ends": 2}


def test_the_checkpoint_tells_where_the_run_was(tmp_path):
    go(tmp_path, epochs=2, every=3)

    about = {one.step: one.metadata["run"] for one in mc.list_checkpoints(tmp_path)}
    assert about[6] == {"step": 6, "epoch": 1, "batch": 2, "exact": True, "reasons": []}


def test_a_damaged_newest_save_is_passed_over_and_said(tmp_path):
    with pytest.raises(KeyError, match="a bug"):
        go(tmp_path, epochs=3, every=3, stop=8)
    assert steps(tmp_path) == [3, 6]
    flip(data_file(tmp_path, 6))

    with pytest.warns(mc.CheckpointWarning, match="step-00000006"):
        run, total = go(tmp_path, epochs=3, every=3)

    assert (run.resumed_from, total) == (3, 30.0)
    assert "passing over" in run.opening


@pytest.mark.parametrize("threads", [1, 2])
def test_another_number_of_threads_is_named_as_a_reason(tmp_path, threads):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with pytest.raises(KeyError, match="a bug"):
            go(tmp_path, every=2, stop=3)
        assert steps(tmp_path) == [2]
        torch.set_num_threads(threads)
        run, _ = go(tmp_path, every=2)
    finally:
        torch.set_num_threads(before)

    reasons = ("the number of threads torch computes with was 1, is 2",)
    assert run.exact == (True if threads == 1 else reasons)
    assert mc.list_checkpoints(tmp_path)[0].metadata["run"]["exact"] is (threads == 1)
    shown = run_position(tmp_path)  # what `mckpt show` tells
    assert (shown.step, shown.batch, shown.reasons) == (4, 0, () if threads == 1 else reasons)


def loader(order, batch=2):
    return DataLoader(TensorDataset(torch.arange(8.0)), batch_size=batch, sampler=order)


@pytest.mark.parametrize(("order", "exact"), [(range(8), True), (range(7, -1, -1), False)])
def test_another_order_of_the_data_is_noticed(tmp_path, order, exact):
    for _ in mc.Run(tmp_path, data=loader(range(8)), every=2, epochs=1, state={"a": 1}):
        if len(steps(tmp_path)) == 1:
            break
    run = mc.Run(tmp_path, data=loader(order), every=2, epochs=1, state={"a": 1})
    list(run)

    assert (run.exact is True) is exact
    assert exact or "the order of the data is another" in run.exact[0]


def test_nothing_is_saved_while_gradients_are_accumulated(tmp_path):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in (run := mc.Run(tmp_path, data=range(12), every=2, weight=weight, optimizer=optimizer)):
        weight.sum().backward()
        if run.step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()

    assert steps(tmp_path) == [3, 6, 9, 12]


@pytest.mark.parametrize("accumulate", [2, 3])
def test_gradients_that_a_finished_run_left_are_named_when_it_is_given_more_epochs(tmp_path, accumulate):
    def train(epochs):
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        run = mc.Run(tmp_path, data=DATA, epochs=epochs, weight=weight, optimizer=optimizer)
        for _ in run:
            weight.sum().backward()
            if run.step % accumulate == accumulate - 1:
                optimizer.step()
                optimizer.zero_grad()
        return run.exact

    lost = ("it was saved with gradients that were not stepped, and they are lost",)
    assert train(1) is True
    assert train(2) == (True if accumulate == 2 else lost)


def test_a_loop_under_run_draws_the_numbers_of_a_plain_loop():
    def numbers(wrap):
        torch.manual_seed(3)
        random.seed(3)
        data = DataLoader(TensorDataset(torch.arange(20.0)), batch_size=4, shuffle=True)
        return [(x.tolist(), torch.rand(1).item(), random.random()) for _ in range(2) for (x,) in wrap(data)]

    plain = numbers(lambda data: data)
    torch.manual_seed(3)
    random.seed(3)
    data = DataLoader(TensorDataset(torch.arange(20.0)), batch_size=4, shuffle=True)
    run = mc.Run("memory://same-numbers", data=data, epochs=2, state={"a": 1})
    assert [(x.tolist(), torch.rand(1).item(), random.random()) for (x,) in run] == plain


def test_the_place_is_found_without_reading_samples(tmp_path):
    class Counted(TensorDataset):
        read = 0

        def __getitem__(self, index):
            Counted.read += 1
            return super().__getitem__(index)

    data = DataLoader(Counted(torch.arange(1000.0)), batch_size=1, shuffle=True)
    for _ in (run := mc.Run(tmp_path, data=data, every=900, state={"a": 1})):
        if run.step == 950:
            break
    mc.finish_saves(tmp_path)
    Counted.read = 0
    rest = list(mc.Run(tmp_path, data=data, every=900, state={"a": 1}))

    assert len(rest) == Counted.read == 100


def test_the_callers_loader_is_left_as_it_was():
    data = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2, shuffle=True)
    before = dict(data.__dict__)
    list(mc.Run("memory://left-alone", data=data, state={"a": 1}))

    assert data.__dict__ == before


def test_a_second_interrupt_is_not_held_back(tmp_path):
    def body():
        for _ in mc.Run(tmp_path, data=DATA, state={"a": 1}):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("the second one should have ended the body")

    with pytest.raises(KeyboardInterrupt):  # noqa: PT011
        body()
    assert not (tmp_path / "checkpoints").exists() or steps(tmp_path) == []


def test_a_run_in_another_thread_hears_no_signals_and_says_so(tmp_path, caplog):
    worker = threading.Thread(target=go, args=(tmp_path,))
    worker.start()
    worker.join()

    assert steps(tmp_path) == [4]
    assert "signals are not heard" in caplog.text


def test_a_tensor_is_logged_without_its_graph(tmp_path):
    weight = torch.nn.Parameter(torch.ones(1))
    run = mc.Run(tmp_path, data=DATA, weight=weight)
    for _ in run:
        run.log(loss=weight.sum() * 2)

    assert isinstance(run._metrics.newest["loss"], float)
    assert run.metrics == {"loss": 2.0}


def test_a_number_is_logged_as_it_was_then(tmp_path):
    weight, total = torch.zeros(1), np.zeros(())
    run = mc.Run(tmp_path, data=DATA, state={"a": 1})
    for _ in run:
        run.log(weight=weight, total=total)
        weight += 1
        total += 1

    assert run.metrics == {"weight": 3.0, "total": 3.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": iter(DATA)}, "cannot be begun anew"),
        ({"data": 5}, "cannot be begun anew"),
        ({"data": DATA, "epochs": 0}, "epochs must be a whole number above 0"),
        ({"data": DATA, "every": 0}, "every must be a whole number of bodies"),
        ({"data": DATA, "run": 3}, "this name is taken"),
        ({"data": DATA, "evry": 3}, r"evry=: a int cannot be filled by a resume.*Did you mean every=\?"),
        ({"data": DATA, "best": None}, "best=: a NoneType cannot be filled"),
    ],
)
def test_what_no_run_could_resume_is_refused_at_once(tmp_path, options, message):
    with pytest.raises(OptionInvalid, match=message):
        mc.Run(tmp_path, **options)


def test_what_a_load_can_only_replace_is_refused_on_the_first_start(tmp_path):
    import jax.numpy as jnp

    with pytest.raises(OptionInvalid, match=r"params=: a .* cannot be filled by a resume"):
        mc.Run(tmp_path, data=DATA, params=jnp.zeros(3))


def test_arrays_of_jax_in_a_dict_come_back(tmp_path):
    import jax.numpy as jnp

    def train(stop):
        held = {"w": jnp.zeros(2)}
        for batch in (run := mc.Run(tmp_path, data=DATA, epochs=2, every=2, held=held)):
            if run.step == stop:
                break
            held["w"] = held["w"] + batch
        mc.finish_saves(tmp_path)
        return held["w"].tolist(), run.resumed_from

    train(stop=5)
    assert train(stop=None) == ([20.0, 20.0], 4)


def test_a_checkpoint_of_something_else_is_refused_by_name(tmp_path):
    mc.save(tmp_path, {"weights": [1.0], "run": {"place": 5}}, step=1)

    with pytest.raises(StructureMismatch, match="run"):
        mc.Run(tmp_path, data=DATA, weights=[2.0])


def test_another_number_of_generators_in_the_data_is_refused(tmp_path):
    def make(generator):
        return DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2, shuffle=True, generator=generator)

    for _ in mc.Run(tmp_path, data=make(torch.Generator()), every=1, state={"a": 1}):
        if steps(tmp_path):
            break
    with pytest.raises(StructureMismatch, match="saved with 1 generators of its own, now it has 0"):
        list(mc.Run(tmp_path, data=make(None), state={"a": 1}))


def test_a_run_that_is_told_to_end_replaces_a_damaged_save_of_that_step(tmp_path):
    with pytest.raises(KeyError, match="a bug"):
        go(tmp_path, epochs=3, every=3, stop=8)
    assert steps(tmp_path) == [3, 6]
    [data] = (tmp_path / "checkpoints" / "step-00000006").glob("*.safetensors")
    data.write_bytes(data.read_bytes()[:-1] + b"?")
    total = {"sum": np.zeros(())}
    with pytest.warns(mc.CheckpointWarning, match="step-00000006"):
        run = mc.Run(tmp_path, data=DATA, epochs=3, every=None, total=total)

    def told():
        for batch in run:
            total["sum"] += batch
            if run.step == 5:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit, match="143"):
        told()
    assert [(one.info.step, one.ok) for one in mc.verify(tmp_path)] == [(6, True), (3, True)]
    assert mc.load(tmp_path)["total"]["sum"] == 13.0
