"""The guards of lazy staging: what they cannot hold is told, refused or copied at once, and they stop no training."""

import copy
import logging

import pytest
from tests.ground.stored.equal_values import same

torch = pytest.importorskip("torch")

from tests.engine.background.lazy_training import TIGHT, WIDTH, frozen_copy, hooks, loss_of, make  # noqa: E402

import model_checkpoint as mc  # noqa: E402
from model_checkpoint.engine.background.save_async import finish_saves, save_async  # noqa: E402
from model_checkpoint.engine.jobs.running_save import SaveState  # noqa: E402
from model_checkpoint.errors import LazyRefused, StateChanged  # noqa: E402


@pytest.mark.parametrize("late", [False, True], ids=["during-the-copy", "before-the-step"])
def test_a_guarded_tensor_written_outside_a_step_fails_the_save_by_name(tmp_path, gate, late):
    state = make()

    gate.guards = [state["optimizer"]]
    job = save_async(tmp_path, state, step=1, lazy=True, memory_limit=None if late else TIGHT, progress=gate)
    if late:
        assert job._running.copied()
    with torch.no_grad():
        state["model"].last.weight.add_(1)
    gate.opened.set()

    with pytest.raises(StateChanged, match=r"model\.last\.weight was written to .*job\.wait_staged\(\)"):
        job.result()
    assert mc.list_checkpoints(tmp_path) == []
    assert job.state is SaveState.FAILED


def written_before_its_copy(folder, gate):
    state = make()
    gate.guards = [state["optimizer"]]
    job = save_async(folder, state, step=1, lazy=True, memory_limit=TIGHT, progress=gate)
    with torch.no_grad():
        state["model"].last.weight.add_(1)
    gate.open_soon()
    return state, job


def test_a_broken_promise_never_stops_the_training_itself(tmp_path, gate):
    state, job = written_before_its_copy(tmp_path, gate)

    loss_of(state["model"]).backward()
    state["optimizer"].step()

    with pytest.raises(StateChanged, match="wait_staged"):
        job.result()
    assert mc.list_checkpoints(tmp_path) == []


WRITES = {
    "data": lambda p: p.data.fill_(7),
    "numpy": lambda p: p.detach().numpy().fill(7),
    "version-shown": lambda p: p.detach().fill_(7),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_waiting_for_the_copy_makes_every_write_safe(tmp_path, gate, write):
    state = make()
    expected = frozen_copy(state)

    job = save_async(tmp_path, state, step=1, lazy=True, progress=gate)
    job.wait_staged(30)
    write(state["model"].last.weight)
    gate.opened.set()
    job.result()

    assert same(mc.load(tmp_path), expected)


def test_waiting_for_the_copy_tells_of_a_write_before_it(tmp_path, gate):
    _, job = written_before_its_copy(tmp_path, gate)

    with pytest.raises(StateChanged, match=r"model\.last\.weight"):
        job.wait_staged()


def test_lazy_without_an_optimizer_is_eager_and_says_so(tmp_path, gate, caplog):
    net = torch.nn.Linear(WIDTH, WIDTH)
    expected = copy.deepcopy(net.state_dict())

    with caplog.at_level(logging.WARNING, "model_checkpoint.save"):
        job = save_async(tmp_path, {"model": net}, step=1, lazy=True, progress=gate)

    assert job.state is SaveState.STAGED
    assert "no optimizer guards the state, so all is copied at the call" in caplog.text
    with torch.no_grad():
        net.weight.zero_()
    gate.opened.set()
    job.result()
    assert same(mc.load(tmp_path)["model"], expected)


def test_a_parameter_no_guard_steps_is_copied_at_the_call(tmp_path, gate):
    trained, other = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    expected = copy.deepcopy(other.state_dict())

    job = save_async(tmp_path, {"t": trained, "o": other}, step=1, lazy=True, guard=[optimizer], progress=gate)
    with torch.no_grad():
        other.weight.zero_()
    gate.opened.set()
    job.result()

    assert same(mc.load(tmp_path)["o"], expected)


def test_an_embedding_that_renorms_in_its_forward_is_refused(tmp_path):
    net = torch.nn.Sequential(torch.nn.Embedding(10, 4, max_norm=1.0), torch.nn.Linear(4, 4))
    state = {"model": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1)}

    with pytest.raises(LazyRefused, match=r"^0: the forward of Embedding\(max_norm=1\.0\) changes its weight"):
        save_async(tmp_path, state, step=1, lazy=True)

    assert save_async(tmp_path, state, step=1).result().step == 1


def test_an_optimizer_that_steps_in_backward_is_refused(tmp_path):
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    handle = net.weight.register_post_accumulate_grad_hook(lambda p: None)

    with pytest.raises(LazyRefused, match=r"parameter of shape \[4, 4\]: a hook may step its optimizer in backward"):
        save_async(tmp_path, {"model": net, "optimizer": optimizer}, step=1, lazy=True)
    handle.remove()
    net.weight._in_backward_optimizers = [optimizer]
    with pytest.raises(LazyRefused, match="in backward"):
        save_async(tmp_path, {"model": net}, step=1, lazy=True, guard=[optimizer])
    finish_saves()


def test_a_guard_that_is_no_optimizer_is_refused(tmp_path):
    with pytest.raises(TypeError, match="expected torch optimizers, got Linear"):
        save_async(tmp_path, {"a": 1}, step=1, lazy=True, guard=[torch.nn.Linear(1, 1)])


def test_our_hook_lives_with_hooks_of_others_before_and_after_it(tmp_path):
    state, calls = make(), []
    state["optimizer"].register_step_pre_hook(lambda *_: calls.append("before"))

    for step in range(3):
        job = save_async(tmp_path, state, step=step, lazy=True)
        if step == 1:
            state["optimizer"].register_step_pre_hook(lambda *_: calls.append("after"))
        loss_of(state["model"]).backward()
        state["optimizer"].step()
        state["optimizer"].step()
        job.result()

    assert calls == ["before"] * 2 + ["before", "after"] * 4
    assert hooks(state["optimizer"]) <= 3
    save_async(
        tmp_path, {"model": state["model"]}, step=9, lazy=True, guard=[torch.optim.SGD([torch.zeros(1)], lr=1)]
    ).result()
    assert hooks(state["optimizer"]) == 2


def test_a_cancelled_lazy_save_lets_the_step_go_on(tmp_path, gate):
    state = make()
    gate.guards = [state["optimizer"]]
    job = save_async(tmp_path, state, step=1, lazy=True, memory_limit=TIGHT, progress=gate)

    assert job.cancel()
    loss_of(state["model"]).backward()
    state["optimizer"].step()

    gate.opened.set()
    assert job.exception() is not None
    assert job.state is SaveState.CANCELLED
    assert mc.list_checkpoints(tmp_path) == []


def test_a_background_failure_lets_the_step_go_on(tmp_path):
    def fail(event):
        raise KeyError("listener")

    state = make()
    job = save_async(tmp_path, state, step=1, lazy=True, memory_limit=TIGHT, progress=fail)

    loss_of(state["model"]).backward()
    state["optimizer"].step()

    with pytest.raises(KeyError, match="listener"):
        job.result()
