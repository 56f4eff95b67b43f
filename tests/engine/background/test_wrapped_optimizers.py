"""An optimizer inside another object guards a lazy save, and is saved and loaded, as the bare one does."""

import pytest
from tests.engine.background.lazy_training import TIGHT, frozen_copy, loss_of, make, train
from tests.ground.stored.equal_values import same

torch = pytest.importorskip("torch")
import model_checkpoint as mc  # noqa: E402
from model_checkpoint.errors import StructureMismatch, UnsupportedType  # noqa: E402


class Wrapper(torch.optim.Optimizer):
    """As Accelerate's: an optimizer by its class, without anything an optimizer sets up for itself."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    state = property(lambda self: self.optimizer.state)
    param_groups = property(lambda self: self.optimizer.param_groups)
    defaults = property(lambda self: self.optimizer.defaults)

    def state_dict(self):
        return self.optimizer.state_dict()

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state)

    def step(self, closure=None):
        return self.optimizer.step(closure)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)


class Bare:
    """No optimizer by its class, but it has one."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups)


def accelerated(optimizer):
    accelerate = pytest.importorskip("accelerate")
    return accelerate.Accelerator(cpu=True).prepare(optimizer)


WRAPPERS = {"like-accelerate": Wrapper, "twice": lambda one: Wrapper(Wrapper(one)), "accelerate": accelerated}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_wrapped_optimizer_in_the_state_guards_a_lazy_save(tmp_path, gate, wrap):
    state = make()
    inner, state["optimizer"] = state["optimizer"], wrap(state["optimizer"])
    expected = frozen_copy(state)

    gate.guards = [inner]
    job = mc.save_async(tmp_path, state, step=1, lazy=True, memory_limit=TIGHT, progress=gate)
    gate.open_soon()
    train(state, steps=2)
    job.result()

    assert same(mc.load(tmp_path), expected)
    assert not same(frozen_copy(state), expected)


@pytest.mark.parametrize("wrap", [*WRAPPERS.values(), Bare], ids=[*WRAPPERS, "no-optimizer"])
def test_a_wrapped_optimizer_is_taken_as_a_guard(tmp_path, gate, wrap):
    state = make()
    inner = state.pop("optimizer")
    expected = frozen_copy(state)

    gate.guards = [inner]
    job = mc.save_async(tmp_path, state, step=1, lazy=True, guard=[wrap(inner)], memory_limit=TIGHT, progress=gate)
    gate.open_soon()
    loss_of(state["model"]).backward()
    inner.step()
    job.result()

    assert same(mc.load(tmp_path), expected)


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_wrapped_and_bare_optimizers_load_each_other(tmp_path, wrap):
    one, other = make(), make()
    other["optimizer"].state.clear()
    mc.save(tmp_path / "wrapped", {**one, "optimizer": wrap(one["optimizer"])}, step=1)
    mc.save(tmp_path / "bare", one, step=1)

    mc.load(tmp_path / "wrapped", into=other)
    assert same(frozen_copy(other), frozen_copy(one))
    other["optimizer"].state.clear()
    mc.load(tmp_path / "bare", into={**other, "optimizer": wrap(other["optimizer"])})
    assert same(frozen_copy(other), frozen_copy(one))


def test_a_wrapper_does_not_hide_another_kind_of_optimizer(tmp_path):
    one, other = make(torch.optim.SGD, lr=0.1), make()
    mc.save(tmp_path, {**one, "optimizer": Wrapper(one["optimizer"])}, step=1)

    with pytest.raises(StructureMismatch, match=r"optimizer: saved from .*SGD, live it is .*Adam"):
        mc.load(tmp_path, into={**other, "optimizer": Wrapper(other["optimizer"])})


def test_what_cannot_be_held_back_is_no_guard(tmp_path):
    state = make()
    schedule = torch.optim.lr_scheduler.StepLR(state["optimizer"], 1)
    for odd in (schedule, Wrapper(None), object()):
        with pytest.raises(UnsupportedType, match="guard: expected torch optimizers, got"):
            mc.save_async(tmp_path, state, step=1, lazy=True, guard=[odd])
