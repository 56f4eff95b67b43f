"""Guards: which tensors an optimizer's step alone writes, and how that step is held back, once and whole."""

import pytest
import torch

from model_checkpoint.errors import LazyRefused, UnsupportedType
from model_checkpoint.tree import flatten
from model_checkpoint.tree.flattening import torch_guards
from model_checkpoint.tree.flattening.torch_guards import find_guard


def trained(module=None, **options):
    module = torch.nn.Linear(2, 2) if module is None else module
    optimizer = torch.optim.SGD(module.parameters(), lr=torch.tensor(0.1), momentum=0.5, **options)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return module, optimizer


def names(guard):
    return sorted(watched.name for watched in guard.leaves.values())


def test_parameters_and_their_state_are_guarded_and_nothing_else():
    module, optimizer = trained()
    flat = flatten({"m": module, "o": optimizer, "other": torch.ones(3), "twin": torch.ones(2)})

    guard = find_guard(flat, [])

    assert names(guard) == [
        "m.bias", "m.weight", "o.state.m.bias.momentum_buffer", "o.state.m.weight.momentum_buffer",
    ]  # fmt: skip
    assert [flat.leaves[index].name for index in guard.leaves] == [watched.name for watched in guard.leaves.values()]
    assert guard.optimizers == [optimizer]


def test_without_an_optimizer_nothing_is_guarded():
    assert find_guard(flatten({"m": torch.nn.Linear(1, 1)}), []) is None


def test_an_optimizer_that_is_given_and_saved_holds_back_once():
    module, optimizer = trained()

    assert find_guard(flatten({"m": module, "o": optimizer}), [optimizer]).optimizers == [optimizer]
    assert names(find_guard(flatten({"m": module}), [optimizer])) == ["m.bias", "m.weight"]


def test_tensors_anywhere_in_the_state_of_a_parameter_are_guarded():
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight])
    deep = [torch.ones(1), torch.ones(2), torch.ones(3), torch.ones(0)]
    optimizer.state[weight] = {"a": [deep[0]], "b": ({"c": deep[1]},), "d": deep[2], "none": deep[3], "step": 1}

    guard = find_guard(flatten({"x": deep, "w": weight}), [optimizer])

    assert names(guard) == ["w", "x.0", "x.1", "x.2"]


def test_a_tensor_of_inference_has_no_version_to_watch():
    with torch.inference_mode():
        weight = torch.zeros(2)
    other = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([other])
    optimizer.state[other] = {"frozen": weight}

    assert names(find_guard(flatten({"w": weight, "o": other}), [optimizer])) == ["o"]


class Wrapper:
    """What wraps an optimizer without hooks of its own."""

    def __init__(self, optimizer):
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups


def test_what_wraps_an_optimizer_is_looked_through():
    module, optimizer = trained()

    assert find_guard(flatten({"m": module}), [Wrapper(Wrapper(optimizer))]).optimizers == [optimizer]


@pytest.mark.parametrize(
    "other",
    [5, torch.nn.Linear(1, 1), type("Groups", (), {"param_groups": []})()],
    ids=lambda other: type(other).__name__,
)
def test_what_cannot_be_held_back_is_no_guard(other):
    with pytest.raises(UnsupportedType, match=rf"^guard: expected torch optimizers, got {type(other).__qualname__}"):
        find_guard(flatten({"w": torch.ones(1)}), [other])


def test_a_write_since_the_call_is_seen():
    module, optimizer = trained()
    watched = {one.name: one for one in find_guard(flatten({"m": module, "o": optimizer}), []).leaves.values()}

    with torch.no_grad():
        module.bias.add_(1)

    assert (watched["m.bias"].moved, watched["m.weight"].moved) == (True, False)


def test_a_step_waits_once_before_it_writes_and_nothing_is_left_behind():
    module, optimizer = trained()
    guard = find_guard(flatten({"m": module, "o": optimizer}), [])
    before, seen = module.weight.detach().clone(), []

    guard.hold(lambda: seen.append(torch.equal(module.weight, before)))
    optimizer.step()
    optimizer.step()

    assert seen == [True]
    assert not torch.equal(module.weight, before)
    assert len(optimizer._optimizer_step_pre_hooks) == 0
    assert torch_guards._spent == []


def test_a_wait_that_was_interrupted_is_repeated_by_the_next_step():
    module, optimizer = trained()
    calls = []

    def wait():
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt

    find_guard(flatten({"m": module, "o": optimizer}), []).hold(wait)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        optimizer.step()
    optimizer.step()
    optimizer.step()

    assert len(calls) == 2


def test_hooks_that_others_registered_later_are_called_and_ours_goes_at_the_next_save():
    """While torch loops over hooks, only the last may go."""
    module, optimizer = trained()
    guard = find_guard(flatten({"m": module, "o": optimizer}), [])
    calls = []
    guard.hold(lambda: calls.append("first"))
    optimizer.register_step_pre_hook(lambda *args: calls.append("theirs"))

    optimizer.step()
    optimizer.step()

    assert calls == ["first", "theirs", "theirs"]
    assert len(optimizer._optimizer_step_pre_hooks) == 2
    guard.hold(lambda: calls.append("second"))
    assert len(optimizer._optimizer_step_pre_hooks) == 2
    optimizer.step()
    assert calls[3:] == ["theirs", "second"]
    assert len(optimizer._optimizer_step_pre_hooks) == 1
    assert torch_guards._spent == []


def test_each_optimizer_waits_by_itself():
    (one, first), (two, second) = trained(), trained()
    calls = []
    guard = find_guard(flatten({"one": one, "two": two, "a": first, "b": second}), [])
    guard.hold(lambda: calls.append(1))

    first.step()
    second.step()

    assert len(calls) == 2
    assert torch_guards._spent == []


@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_an_embedding_that_its_forward_changes_is_refused(kind):
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), kind(4, 2, max_norm=1.0))
    optimizer = torch.optim.SGD(module.parameters())

    with pytest.raises(LazyRefused, match=rf"^1: the forward of {kind.__name__}\(max_norm=1\.0\) changes its weight"):
        find_guard(flatten({"m": module, "o": optimizer}), [])
    with pytest.raises(LazyRefused, match=rf"^the module: the forward of {kind.__name__}"):
        find_guard(flatten({"m": module[1], "o": optimizer}), [])
    others = torch.optim.SGD(module[0].parameters())  # which never writes to the embedding
    assert names(find_guard(flatten({"m": module, "o": others}), [])) == ["m.0.bias", "m.0.weight"]
    free = kind(4, 2)
    assert names(find_guard(flatten({"m": free}), [torch.optim.SGD(free.parameters())])) == ["m.weight"]


def test_a_parameter_that_may_step_in_backward_is_refused():
    module, optimizer = trained()
    handle = module.weight.register_post_accumulate_grad_hook(lambda parameter: None)

    with pytest.raises(LazyRefused, match=r"^parameter of shape \[2, 2\]: a hook may step its optimizer in backward"):
        find_guard(flatten({"m": module, "o": optimizer}), [])
    handle.remove()
    assert len(find_guard(flatten({"m": module, "o": optimizer}), []).leaves) == 4
    module.bias._in_backward_optimizers = [optimizer]
    with pytest.raises(LazyRefused, match=r"^parameter of shape \[2\]: a hook may step its optimizer in backward"):
        find_guard(flatten({"m": module, "o": optimizer}), [])
