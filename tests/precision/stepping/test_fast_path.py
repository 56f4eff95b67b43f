"""The piecewise fused step: same bits as the public one, chosen only when it may be."""

import dataclasses
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from tests.precision.precision_models import assert_same, bits, build, options, train, wrap

from model_checkpoint.precision import MixedPrecisionOptimizer
from model_checkpoint.precision.stepping import apply_step as stepping
from model_checkpoint.precision.stepping import kernels
from model_checkpoint.precision.stepping.apply_step import describe_kernel
from model_checkpoint.precision.stepping.kernels import (
    _KERNELS,
    FusedSlice,
    choose_piece,
    divides_inside,
    find_kernel,
    has_states,
    passes_probe,
    step_in_pieces,
    takes_grad_scale,
)

FUSED = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "adamw_maximize": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True, maximize=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, fused=True, weight_decay=0.1),
    "adam_tensor_lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(1e-2), fused=True),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, fused=True),
}


@pytest.fixture
def no_private_operators(monkeypatch):
    monkeypatch.setattr(stepping, "find_kernel", lambda base: None)


def trained(base, chosen, steps=30):
    model = build()
    optimizer = wrap(model, FUSED[base], chosen)
    train(model, optimizer, range(steps), spoil={3, 9})
    return bits(optimizer)


@pytest.mark.parametrize("half_gradients", [False, True])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("base", sorted(FUSED))
def test_pieces_give_the_bits_of_the_public_step(base, precision, half_gradients, monkeypatch):
    chosen = options(precision, accumulate_in_fp32=not half_gradients, max_grad_norm=0.3)
    monkeypatch.setattr(stepping, "choose_piece", lambda *_: 64)
    in_pieces = trained(base, chosen)

    monkeypatch.setattr(stepping, "find_kernel", lambda base: None)

    assert_same(trained(base, chosen), in_pieces)


def test_the_fast_path_is_really_taken(monkeypatch):
    calls = []
    real = stepping.step_in_pieces
    monkeypatch.setattr(stepping, "step_in_pieces", lambda *a, **k: calls.append(1) or real(*a, **k))

    trained("adamw", options(), steps=3)

    assert len(calls) == 2 * 7  # the first step makes the states


@pytest.mark.parametrize("kernel", _KERNELS, ids=lambda k: k.optimizer.__name__)
def test_every_kernel_passes_its_probes_here(kernel):
    assert passes_probe.__wrapped__(kernel)  # not what an earlier test has been told
    assert divides_inside.__wrapped__(kernel)


@pytest.mark.parametrize("kernel", _KERNELS, ids=lambda k: k.optimizer.__name__)
@pytest.mark.parametrize("spoil", ["weight", "states"])
def test_an_operator_that_is_right_but_for_the_weight_or_its_states_fails_the_probe(kernel, spoil):
    def nearly(weight, gradient, states, **rest):
        kernel.launch(weight, gradient, states, **rest)
        (weight if spoil == "weight" else states[-1])[-1] += 1.0

    assert not passes_probe.__wrapped__(dataclasses.replace(kernel, launch=nearly))


def test_only_an_asked_for_plain_fused_optimizer_has_a_kernel():
    class Mine(torch.optim.AdamW):
        pass

    weights = [torch.nn.Parameter(torch.ones(2))]

    assert find_kernel(torch.optim.AdamW(weights, fused=True)) is not None
    assert find_kernel(torch.optim.AdamW(weights)) is None
    assert find_kernel(torch.optim.AdamW(weights, foreach=True)) is None
    assert find_kernel(Mine(weights, fused=True)) is None
    assert find_kernel(torch.optim.RMSprop(weights)) is None
    assert not takes_grad_scale(torch.optim.AdamW(weights))
    assert not takes_grad_scale(torch.optim.RMSprop(weights))
    for changed in ({"differentiable": True}, {"fused": None}):
        base = torch.optim.AdamW([{"params": weights}, {"params": [torch.nn.Parameter(torch.ones(2))]}], fused=True)
        assert takes_grad_scale(base)
        base.param_groups[1].update(changed)
        assert find_kernel(base) is None
        assert not takes_grad_scale(base)


def test_a_torch_without_the_private_operator_falls_back(monkeypatch):
    def missing(*_, **__):
        raise AttributeError("module 'torch' has no attribute '_fused_adamw_'")

    broken = kernels.Kernel(torch.optim.AdamW, missing, _KERNELS[0].state_names, True)
    monkeypatch.setattr(kernels, "_KERNELS", (broken,))

    assert find_kernel(torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], fused=True)) is None


def test_an_operator_that_computes_something_else_falls_back(monkeypatch):
    def wrong(weight, *_, **__):
        weight.add_(1)

    broken = kernels.Kernel(torch.optim.AdamW, wrong, _KERNELS[0].state_names, True)
    monkeypatch.setattr(kernels, "_KERNELS", (broken,))

    assert find_kernel(torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], fused=True)) is None


def test_an_optimizer_that_does_nothing_is_not_said_to_divide_its_gradients():
    class Still(torch.optim.SGD):
        def step(self, closure=None):
            """Move nothing."""

    class Deaf(torch.optim.SGD):
        def step(self, closure=None):
            self.grad_scale = None
            super().step()

    class Broken(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError("no fused step here")

    sgd = next(one for one in _KERNELS if one.optimizer is torch.optim.SGD)

    assert divides_inside(sgd)
    for kind in (Still, Deaf, Broken):
        assert not divides_inside(dataclasses.replace(sgd, optimizer=kind))


def plain_sgd(launch=None):
    """The kernel of SGD, and a group in which a step takes the gradient off the weight."""
    sgd = next(one for one in _KERNELS if one.optimizer is torch.optim.SGD)
    group = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0, fused=True).param_groups[0]
    return dataclasses.replace(sgd, launch=launch or sgd.launch), group


@pytest.mark.parametrize(
    ("elements", "across", "launched"),
    [
        (4, False, [(4,), (4,), (2,)]),
        (9, False, [(9,), (1,)]),
        (10, False, [(2, 5)]),
        (100, False, [(2, 5)]),
        (4, True, [(2, 5)]),
    ],
)
def test_a_weight_is_cut_into_pieces_unless_it_fits_one_or_lies_across(elements, across, launched):
    seen = []
    kernel, group = plain_sgd(lambda weight, *_, **__: seen.append(tuple(weight.shape)))
    tensor = torch.zeros(5, 2).t() if across else torch.zeros(2, 5)
    work = FusedSlice(master=tensor.clone(), gradient=tensor.clone(), target=tensor.half())

    step_in_pieces(kernel, group, {}, work, grad_scale=None, elements=elements)

    assert seen == launched


def test_half_gradients_of_a_weight_that_lies_across_are_taken_by_their_places():
    kernel, group = plain_sgd()
    gradient = torch.arange(6.0).half().reshape(3, 2).t()
    work = FusedSlice(
        master=torch.zeros(3, 2).t(), gradient=gradient, target=torch.ones(3, 2).half().t(), scratch=torch.empty(6)
    )

    step_in_pieces(kernel, group, {}, work, grad_scale=torch.tensor(2.0), elements=4)

    assert torch.equal(work.master, gradient / -2.0)
    assert torch.equal(work.target, gradient / -2.0)


@pytest.mark.parametrize("fastest", [18, 19, 20, 21])
def test_the_piece_size_is_the_one_that_was_fastest_at_its_best(fastest, monkeypatch):
    now, pieces = [0.0], []
    monkeypatch.setattr(kernels, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def launch(weight, *_, **__):
        pieces.append(weight.numel())
        cost = 1.0 if weight.numel() == 1 << fastest and len(pieces) > 15 else 2.0  # not yet in the first round
        now[0] += weight.numel() * cost

    assert choose_piece(plain_sgd(launch)[0], torch.float16, 1) == 1 << fastest
    assert Counter(pieces[:15]) == {1 << 18: 8, 1 << 19: 4, 1 << 20: 2, 1 << 21: 1}


@pytest.mark.parametrize("room", [None, 4, 6, 100])
def test_half_gradients_are_widened_whatever_room_there_is(room):
    sgd, group = plain_sgd()
    master, scratch = torch.zeros(2, 3), None if room is None else torch.empty(room)
    work = FusedSlice(master=master, gradient=torch.arange(6.0).half().reshape(2, 3), target=None, scratch=scratch)

    step_in_pieces(sgd, group, {}, work, grad_scale=None, elements=100)

    assert master.tolist() == [[0.0, -1.0, -2.0], [-3.0, -4.0, -5.0]]


@pytest.mark.parametrize("base", ["adamw", "momentum", "adagrad"])
def test_gradients_that_lie_in_another_order_give_the_same_step(base):
    """Torch's fused steps go through memory and would take the wrong elements without a word."""

    def masters(turn, by_name):
        model = build(model=torch.nn.Linear, in_features=3, out_features=2, bias=False)
        optimizer = wrap(model, FUSED[base], options("bf16"))
        for step in range(3):  # the first makes the states, the others run in pieces
            gradient = turn(torch.arange(6.0).reshape(2, 3) + step)
            if by_name:
                optimizer.step({"weight": gradient})
            else:
                model.weight.grad = gradient
                optimizer.step()
        return optimizer.master_weights["weight"].clone()

    for by_name in (True, False):
        assert_same(masters(lambda g: g.t().contiguous().t(), by_name), masters(lambda g: g, by_name))


def test_hooks_on_the_base_see_every_step():
    model = build()
    optimizer = wrap(model, FUSED["adamw"], options())
    seen = []
    optimizer.base_optimizer.register_step_post_hook(lambda *_: seen.append(1))

    train(model, optimizer, range(4))

    assert len(seen) == 4


def test_hooks_on_the_base_see_a_step_without_gradients_too():
    model, seen = build(), []
    optimizer = wrap(model, FUSED["adamw"], options("bf16"))
    optimizer.base_optimizer.register_step_post_hook(lambda *_: seen.append(1))
    before = bits(optimizer)["masters"]

    optimizer.step()

    assert seen == [1]
    assert_same(before, bits(optimizer)["masters"])


def test_hooks_on_the_wrapper_see_every_step():
    model = build()
    optimizer = wrap(model, FUSED["adamw"], options())
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))

    train(model, optimizer, range(4))

    assert len(seen) == 4


def test_the_piece_size_is_probed_once():
    kernel = _KERNELS[0]

    size = choose_piece(kernel, torch.float16, 1)

    assert size in [1 << power for power in range(18, 22)]
    assert choose_piece(kernel, torch.float16, 1) == size


def test_channels_last_weights_step_with_the_right_bits():
    def one(fused):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 2))
        model = model.to(memory_format=torch.channels_last)
        optimizer = wrap(model, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=fused), options("bf16"))
        data = torch.randn(4, 4, 8, 8).to(memory_format=torch.channels_last)
        for _ in range(6):
            optimizer.zero_grad()
            optimizer.backward(model(data).square().mean())
            optimizer.step()
        return optimizer.master_weights["0.weight"].clone()

    assert torch.allclose(one(True), one(False), atol=1e-6)


def test_the_flavour_of_arithmetic_is_described():
    weights = [torch.nn.Parameter(torch.ones(2))]

    assert describe_kernel(torch.optim.AdamW(weights, fused=True)) == "fused"
    assert describe_kernel(torch.optim.AdamW(weights, foreach=True)) == "loop"
    base = torch.optim.AdamW([{"params": weights, "fused": True}, {"params": [torch.nn.Parameter(torch.ones(1))]}])
    assert describe_kernel(base) == "mixed"


@pytest.mark.usefixtures("no_private_operators")
def test_training_works_without_private_operators():
    assert trained("adamw", options(), steps=5)["counters"]["step_count"] == 5


@pytest.mark.slow
@pytest.mark.parametrize("half_gradients", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_large_tensors_give_the_public_bits_at_the_probed_piece_size(threads, half_gradients, monkeypatch):
    def masters():
        torch.manual_seed(0)
        weights = [torch.nn.Parameter(torch.randn(3_000_017)), torch.nn.Parameter(torch.randn(100, 37))]
        chosen = options("fp16", accumulate_in_fp32=not half_gradients)
        optimizer = MixedPrecisionOptimizer(FUSED["adamw"](weights), chosen)
        for _ in range(3):
            for weight in weights:
                gradient = torch.randn(weight.shape) * 0.1
                weight.grad = gradient.half() if half_gradients else gradient
            optimizer.scale_loss(torch.ones(()))
            assert optimizer.step().applied
        return [slot.master.detach().clone() for slot in optimizer.parameter_table.slots]

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        in_pieces = masters()
        monkeypatch.setattr(stepping, "find_kernel", lambda base: None)
        whole = masters()
    finally:
        torch.set_num_threads(before)

    assert all(torch.equal(one, other) for one, other in zip(in_pieces, whole, strict=True))


@pytest.mark.parametrize("name", FUSED)
def test_a_kernel_is_ready_when_an_earlier_step_has_made_all_it_needs(name):
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    base = FUSED[name]([weight])
    kernel, group = find_kernel(base), base.param_groups[0]
    base.step()
    made = dict(base.state[weight])

    assert has_states(kernel, group, made)
    for missing in made:
        needed = isinstance(made[missing], torch.Tensor)
        assert has_states(kernel, group, made | {missing: None}) is not needed


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("when", ["pre", "post"])
def test_an_optimizer_with_any_hook_steps_as_a_whole(when, everywhere):
    base = FUSED["adamw"]([torch.nn.Parameter(torch.ones(3))])
    place = stepping._torch_optimizer if everywhere else base
    register = getattr(place, f"register_{'optimizer_' if everywhere else ''}step_{when}_hook")
    assert not stepping._has_hooks(base)

    handle = register(lambda *_: None)
    try:
        assert stepping._has_hooks(base)
    finally:
        handle.remove()
    assert not stepping._has_hooks(base)
