"""Bit-exact resume: an interrupted run and an unbroken one agree in every bit, from every phase."""

import pytest
import torch
from tests.precision.precision_models import Net, assert_same, bits, build, loss_of, options, train, wrap

from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager
from model_checkpoint.precision import from_tree, to_tree
from model_checkpoint.precision.errors import PendingGradients
from model_checkpoint.precision.scaling.fallback import GroupMode

BASES = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "amsgrad_fused": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, fused=True),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "sgd_momentum_fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "adagrad_fused": lambda p: torch.optim.Adagrad(p, lr=0.1, fused=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.05),  # state per row and per column
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
    "adamax": lambda p: torch.optim.Adamax(p, lr=1e-2),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-2),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-2),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.05),
    "rprop": lambda p: torch.optim.Rprop(p, lr=1e-3),
    "muon": lambda p: torch.optim.Muon([one for one in p if one.ndim == 2], lr=1e-2),
}
MAIN = ["adamw", "adamw_fused", "sgd_momentum", "adagrad", "adafactor"]
SPOILED = {3, 4, 11, 30, 31}


def through_tree(optimizer, **kwargs):
    return from_tree(to_tree(Manager.create_checkpoint(optimizer, **kwargs)))


def resume_equals_unbroken(make_base, chosen, *, cut, more=200, spoil=frozenset(SPOILED)):
    """Train to ``cut``, save, go on; restore into a fresh, differently initialised run and go on likewise."""
    model = build()
    optimizer = wrap(model, make_base, chosen)
    train(model, optimizer, range(cut), spoil=spoil)
    checkpoint = through_tree(optimizer)
    phase = bits(optimizer)
    unbroken = train(model, optimizer, range(cut, cut + more), spoil=spoil)

    other = build(seed=99)
    fresh = wrap(other, make_base, chosen)
    Manager.restore_checkpoint(fresh, checkpoint)
    assert_same(phase, bits(fresh), "restored")
    resumed = train(other, fresh, range(cut, cut + more), spoil=spoil)

    assert resumed == unbroken
    assert_same(bits(optimizer), bits(fresh))
    return phase


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("base", MAIN)
def test_the_next_200_steps_equal_an_unbroken_run(base, precision):
    resume_equals_unbroken(BASES[base], options(precision), cut=20)


@pytest.mark.parametrize("base", sorted(set(BASES) - set(MAIN)))
def test_every_dense_optimizer_of_torch_resumes(base):
    resume_equals_unbroken(BASES[base], options(), cut=15, more=40)


def test_resume_before_the_first_step():
    resume_equals_unbroken(BASES["adamw"], options(), cut=0)


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 12])
def test_resume_in_the_warm_up_of_the_scaler_and_just_after_overflow(cut):
    phase = resume_equals_unbroken(BASES["adamw_fused"], options(growth_interval=9, hysteresis=2), cut=cut)

    assert (phase["scaler"].consecutive_overflows > 0) == (cut in (4, 5, 12))


def falling(**changes):
    return options(max_consecutive_overflows=2, recovery_steps=6, **changes)


@pytest.mark.parametrize(
    ("cut", "mode"),
    [
        (4, GroupMode.LOW),
        (5, GroupMode.FP32),
        (8, GroupMode.FP32),
        (11, GroupMode.PROBATION),
        (14, GroupMode.PROBATION),
    ],
)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_resume_in_fallback_and_in_probation(cut, mode, precision):
    spoil = {3, 4} if precision == "fp16" else set()
    model = build()
    chosen = falling() if precision == "fp16" else options("bf16", max_consecutive_overflows=2, recovery_steps=6)
    optimizer = wrap(model, BASES["adamw_fused"], chosen)
    run(model, optimizer, range(cut), spoil, precision)
    checkpoint = through_tree(optimizer)
    assert optimizer.session.fallback.groups[0].mode is mode
    unbroken = run(model, optimizer, range(cut, cut + 200), spoil, precision)

    other = build(seed=7)
    fresh = wrap(other, BASES["adamw_fused"], chosen)
    Manager.restore_checkpoint(fresh, checkpoint)
    assert fresh.has_fallback == (mode is GroupMode.FP32)
    resumed = run(other, fresh, range(cut, cut + 200), spoil, precision)

    assert resumed == unbroken
    assert_same(bits(optimizer), bits(fresh))


def run(model, optimizer, steps, spoil, precision):
    """As train, but BF16, whose range is wide, is spoiled by a gradient set to NaN."""
    losses = []
    for step in steps:
        losses += train(model, optimizer, [step], spoil=spoil) if precision == "fp16" or step not in {3, 4} else []
        if precision == "bf16" and step in {3, 4}:
            optimizer.zero_grad()
            optimizer.backward(loss_of(model, step))
            model.mix.weight.grad[0, 0] = float("nan")
            optimizer.step()
    return losses


PHASES = {
    0: "before the first step",
    2: "warm-up",
    4: "just after an overflow",
    5: "just fallen back",
    8: "in fallback",
    11: "just on probation",
    18: "trusted again",
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("base", ["adamw_fused", "sgd_momentum", "adagrad", "adafactor"])
def test_every_phase_resumes_for_200_steps_with_every_main_optimizer(base, precision):
    chosen = options(precision, max_consecutive_overflows=2, recovery_steps=6, hysteresis=2)
    model = build()
    optimizer = wrap(model, BASES[base], chosen)
    stored, reached, modes = {}, {}, []
    for step in range(max(PHASES) + 200):
        if step in PHASES:
            stored[step] = through_tree(optimizer)
            modes.append(optimizer.session.fallback.groups[0].mode.value)
        run(model, optimizer, [step], {3, 4}, precision)
        if step - 199 in PHASES:
            reached[step - 199] = bits(optimizer)

    for cut, phase in PHASES.items():
        other = build(seed=99)
        fresh = wrap(other, BASES[base], chosen)
        Manager.restore_checkpoint(fresh, stored[cut])
        run(other, fresh, range(cut, cut + 200), {3, 4}, precision)
        assert_same(reached[cut], bits(fresh), phase)
    assert modes == ["low"] * 3 + ["fp32"] * 2 + ["probation", "low"]


@pytest.mark.parametrize("half_gradients", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("precision", ["fp16", pytest.param("bf16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("base", MAIN)
def test_a_window_of_pending_gradients_is_refused_or_saved_and_continued(base, precision, half_gradients):
    chosen = options(precision, accumulate_in_fp32=not half_gradients)
    model, other = build(), build(seed=3)
    optimizer, fresh = wrap(model, BASES[base], chosen), wrap(other, BASES[base], chosen)
    train(model, optimizer, range(5))
    optimizer.zero_grad()
    optimizer.backward(loss_of(model, 5))
    with pytest.raises(PendingGradients, match=r"have gradients that were not stepped.*pending='save'"):
        Manager.create_checkpoint(optimizer)

    Manager.restore_checkpoint(fresh, through_tree(optimizer, pending="save"))
    for one, its in ((optimizer, model), (fresh, other)):
        one.backward(loss_of(its, 6))
        assert one.step().applied
        train(its, one, range(7, 206))

    assert_same(bits(optimizer), bits(fresh))


def test_a_plain_backward_is_noticed_as_pending_too():
    model = build()
    optimizer = wrap(model, chosen=options("bf16"))
    train(model, optimizer, range(2))
    loss_of(model, 2).backward()

    with pytest.raises(PendingGradients, match="not stepped"):
        Manager.create_checkpoint(optimizer)


def test_gradients_left_over_from_a_step_are_not_pending():
    model = build()
    optimizer = wrap(model)
    train(model, optimizer, range(2))

    assert Manager.create_checkpoint(optimizer).pending is None


def test_schedulers_continue_in_step_with_the_restored_rate():
    def one_run(cut=None):
        model = build()
        optimizer = wrap(model)
        scheduler = optimizer.add_scheduler(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40))
        for step in range(40):
            train(model, optimizer, [step], spoil=SPOILED)
            scheduler.step()
            if step == cut:
                stored, kept = through_tree(optimizer), scheduler.state_dict()
                model = build(seed=8)
                optimizer = wrap(model)
                scheduler = optimizer.add_scheduler(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40))
                scheduler.load_state_dict(kept)
                Manager.restore_checkpoint(optimizer, stored)
        return bits(optimizer), optimizer.learning_rate

    first, second = one_run(), one_run(cut=12)

    assert first[1] == second[1]
    assert_same(first[0], second[0])


def test_several_groups_resume_with_their_own_settings_and_modes():
    def make():
        model = build()
        decay = [p for p in model.parameters() if p.ndim > 1]
        rest = [p for p in model.parameters() if p.ndim <= 1]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "lr": 5e-3}]
        return model, wrap(model, lambda _: torch.optim.AdamW(groups, lr=1e-2), falling())

    model, optimizer = make()
    train(model, optimizer, range(12), spoil={3, 4})
    stored = through_tree(optimizer)
    train(model, optimizer, range(12, 60))

    other, fresh = make()
    Manager.restore_checkpoint(fresh, stored)
    train(other, fresh, range(12, 60))

    assert_same(bits(optimizer), bits(fresh))
    assert fresh.param_groups[1]["lr"] == 5e-3


def test_the_optimizers_own_state_dict_resumes_too():
    model, other = build(), build(seed=4)
    optimizer, fresh = wrap(model), wrap(other)
    train(model, optimizer, range(10), spoil=SPOILED)

    fresh.load_state_dict(optimizer.state_dict())
    for one, its in ((optimizer, model), (fresh, other)):
        train(its, one, range(10, 40), spoil=SPOILED)

    assert_same(bits(optimizer), bits(fresh))


def share(seed):
    """One model under two optimizers with one scaler: matrices to Muon, vectors to AdamW, layers shared by both."""
    model, chosen = build(seed), options(max_consecutive_overflows=2, recovery_steps=6)
    matrices = [model.mix.weight, model.out.weight]
    rest = [one for one in model.parameters() if all(one is not other for other in matrices)]
    first = wrap(model, lambda _: torch.optim.Muon(matrices, lr=0.01), chosen)
    return model, first, wrap(model, lambda _: torch.optim.AdamW(rest, lr=0.01), chosen, scaler=first.scaler)


def go_together(model, first, second, steps):
    for step in steps:
        for one in (first, second):
            one.zero_grad()
        first.backward(loss_of(model, step) * (1e7 if step in (3, 4) else 1))
        for one in (first, second):
            one.step()


@pytest.mark.parametrize("order", ["first second", "second first"])
@pytest.mark.parametrize("cut", [2, 4, 5, 8, 12])
def test_two_optimizers_that_share_layers_and_scale_resume_in_every_mode(cut, order):
    unbroken, resumed = share(0), share(7)
    go_together(*unbroken, range(cut))
    saved = [Manager.create_checkpoint(one) for one in unbroken[1:]]

    places = (0, 1) if order == "first second" else (1, 0)
    findings = [Manager.restore_checkpoint(resumed[1 + place], saved[place]) for place in places]

    for run in (unbroken, resumed):
        go_together(*run, range(cut, 40))
    for before, after in zip(unbroken[1:], resumed[1:], strict=True):
        assert_same(bits(before), bits(after))
    assert unbroken[1].skipped_steps == 2
    early = {finding.message for finding in findings[0]}  # the second cannot know yet that the first will be in FP32
    assert early <= {"was trained in FP32, will be in FP16: exclusions or modes differ"}
    assert bool(early) == (order == "second first" and cut in (5, 8))
    assert findings[1] == []


def test_frozen_weights_and_buffers_come_back():
    def make(seed):
        model = build(seed)
        model.mix.requires_grad_(False)
        model.seen += seed
        return model, wrap(model, lambda p: torch.optim.AdamW([one for one in p if one.requires_grad]))

    (model, optimizer), (other, fresh) = make(5), make(6)

    Manager.restore_checkpoint(fresh, through_tree(optimizer))

    assert torch.equal(other.mix.weight, model.mix.weight)
    assert other.seen.item() == 5


def test_a_tied_weight_is_stored_once_under_all_its_names():
    class Tied(Net):
        def __init__(self):
            super().__init__()
            self.mix, self.norm = torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)
            self.out = torch.nn.Linear(16, 12, bias=False)
            self.out.weight = self.embed.weight

    model, other = build(model=Tied), build(seed=1, model=Tied)
    optimizer, fresh = wrap(model), wrap(other)
    train(model, optimizer, range(5))

    stored = through_tree(optimizer)
    Manager.restore_checkpoint(fresh, stored)

    assert stored.aliases == {"embed.weight": ("out.weight",)}
    assert "out.weight" not in stored.master_weights
    assert other.out.weight is other.embed.weight
    assert_same(bits(optimizer), bits(fresh))
