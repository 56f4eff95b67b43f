"""The optimizer in a training loop: accuracy, accumulation, bad losses, shared scales, agreement with torch."""

import math

import pytest
import torch
from tests.precision.precision_models import assert_same, bits, build, loss_of, options, train, wrap

from model_checkpoint.precision import MixedPrecisionOptimizer, MixedPrecisionOptions, Precision, StepReason


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_training_learns_and_stays_close_to_fp32(precision):
    model, reference = build(), build()
    optimizer = wrap(model, chosen=options(precision, max_grad_norm=0.0))
    plain = torch.optim.AdamW(reference.parameters(), lr=1e-2)

    mixed = train(model, optimizer, range(80))
    full = []
    for step in range(80):
        plain.zero_grad()
        loss = loss_of(reference, step)
        loss.backward()
        plain.step()
        full.append(loss.item())

    assert mixed[-1] < 0.2 < mixed[0]
    assert mixed[-1] == pytest.approx(full[-1], abs=0.02)


def test_skipped_steps_leave_adams_step_alone():
    model = build()
    optimizer = wrap(model)

    train(model, optimizer, range(5), spoil={1, 3})

    steps = {int(entries["step"]) for entries in optimizer.state.values()}
    assert steps == {3}
    assert (optimizer.step_count, optimizer.skipped_steps) == (5, 2)


def test_accumulation_is_in_fp32_without_extra_buffers():
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = wrap(model, chosen=options("bf16", max_grad_norm=0.0))

    for _ in range(1024):
        optimizer.backward(model(torch.ones(1, 1)).sum())

    assert model.weight.grad.dtype == torch.float32
    assert model.weight.grad.item() == 1024.0  # in bf16 the sum would stop at 256


def test_accumulation_in_half_can_be_chosen():
    model = build()
    optimizer = wrap(model, chosen=options(accumulate_in_fp32=False))

    train(model, optimizer, range(3))

    assert model.mix.weight.grad.dtype == torch.float16
    assert optimizer.skipped_steps == 0


@pytest.mark.parametrize("half_gradients", [False, True])
def test_micro_batches_equal_one_large_batch(half_gradients):
    whole, parts = build(), build()
    chosen = options("bf16", accumulate_in_fp32=not half_gradients)
    one, many = wrap(whole, chosen=chosen), wrap(parts, chosen=chosen)
    words = torch.arange(12)

    one.backward(torch.nn.functional.cross_entropy(whole(words), words, reduction="sum"))
    for word in words.split(4):
        many.backward(torch.nn.functional.cross_entropy(parts(word), word, reduction="sum"))
    first, second = one.step(), many.step()

    assert second.grad_norm == pytest.approx(first.grad_norm, rel=2e-2)


def test_one_bad_micro_batch_poisons_its_window():
    model = build()
    optimizer = wrap(model)

    optimizer.backward(loss_of(model, 0))
    optimizer.backward(loss_of(model, 1) * 1e7)

    assert not optimizer.step().applied


def test_a_non_finite_loss_is_not_an_overflow():
    model = build()
    optimizer = wrap(model)
    optimizer.backward(loss_of(model, 0) * math.nan)

    result = optimizer.step()

    assert (result.applied, result.reason) == (False, StepReason.BAD_LOSS)
    assert optimizer.loss_scale == 1024.0
    assert (optimizer.get_stats().bad_losses, optimizer.scaler.total_overflows) == (1, 0)


def test_repeated_bad_losses_lead_to_fallback():
    model = build()
    optimizer = wrap(model, chosen=options(max_consecutive_overflows=3))

    for _ in range(3):
        optimizer.zero_grad()
        optimizer.backward(loss_of(model, 0) * math.inf)
        optimizer.step()

    assert optimizer.has_fallback


def test_a_none_gradient_leaves_weight_and_state_untouched():
    model = build()
    optimizer = wrap(model)
    train(model, optimizer, range(2))
    before = bits(optimizer)
    optimizer.zero_grad()
    optimizer.backward(model.mix(torch.ones(1, 16).half()).float().sum())

    optimizer.step()

    after = bits(optimizer)
    assert_same(before["state"]["out.weight"], after["state"]["out.weight"])
    assert_same(before["masters"]["out.weight"], after["masters"]["out.weight"])
    assert not torch.equal(before["masters"]["mix.weight"], after["masters"]["mix.weight"])


def test_two_losses_and_two_optimizers_share_one_scale_that_moves_once():
    model = build()
    chosen = options()
    first = MixedPrecisionOptimizer(torch.optim.SGD(model.mix.parameters(), lr=0.1), chosen, model=model)
    rest = [*model.embed.parameters(), *model.norm.parameters(), *model.out.parameters()]
    second = MixedPrecisionOptimizer(torch.optim.SGD(rest, lr=0.1), chosen, model=model, scaler=first.scaler)
    assert {p.dtype for p in [model.mix.weight, model.out.weight]} == {torch.float16}

    for step in range(7):
        for optimizer in (first, second):
            optimizer.zero_grad()
        first.backward(loss_of(model, step) + loss_of(model, step + 100))
        for optimizer in (first, second):
            assert optimizer.loss_scale == 1024.0
            assert optimizer.step().applied

    assert (first.loss_scale, first.scaler.growth_tracker) == (2048.0, 0)
    first.backward(loss_of(model, 8) * 1e9)
    assert [first.step().applied, second.step().applied] == [False, False]
    assert (first.loss_scale, first.scaler.total_overflows) == (1024.0, 1)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_decisions_and_bits_equal_torch_grad_scaler_on_the_same_gradients(precision):
    """Clipping off, as GradScaler has none."""
    chosen = options(precision, max_grad_norm=0.0, growth_interval=3)
    generator = torch.Generator().manual_seed(5)
    ours = MixedPrecisionOptimizer(torch.optim.AdamW([torch.nn.Parameter(torch.ones(50))], lr=0.1), chosen)
    weight = torch.nn.Parameter(torch.ones(50))
    base = torch.optim.AdamW([weight], lr=0.1)
    theirs = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3, enabled=precision == "fp16")
    theirs.scale(torch.zeros(()))

    for step in range(40):
        gradient = torch.randn(50, generator=generator)
        if precision == "fp16" and step % 7 == 3:
            gradient[step] = math.inf
        weight.grad = gradient * theirs.get_scale()
        before = weight.detach().clone()
        theirs.step(base)
        result = ours.step({"group0.param0": gradient * ours.loss_scale})
        theirs.update()

        assert result.applied == (not torch.equal(before, weight))
        assert torch.equal(ours.master_weights["group0.param0"], weight)
        assert ours.loss_scale == theirs.get_scale()


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_one_step_is_true_to_a_float64_reference(precision):
    torch.manual_seed(0)
    weight, gradient = torch.randn(1000), torch.randn(1000) * 3
    chosen = MixedPrecisionOptions.for_fp16(precision=precision, max_grad_norm=1.0)
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD([torch.nn.Parameter(weight.clone())], lr=0.5), chosen)

    optimizer.step({"group0.param0": gradient * optimizer.loss_scale})

    true = gradient.double()
    reference = weight.double() - 0.5 * true * min(1.0, 1.0 / (true.norm().item() + 1e-6))
    assert torch.allclose(optimizer.master_weights["group0.param0"].double(), reference, rtol=1e-6, atol=1e-7)
    assert torch.equal(
        optimizer.training_weights["group0.param0"], optimizer.master_weights["group0.param0"].to(precision.dtype)
    )


def test_empty_and_scalar_parameters_step():
    weights = {"none": torch.zeros(0, 3), "one": torch.tensor(1.0)}
    optimizer = MixedPrecisionOptimizer(torch.optim.AdamW([{"params": []}], lr=0.1, fused=True), options())
    optimizer.set_parameters(weights)

    for _ in range(3):
        optimizer.step({"none": torch.zeros(0, 3), "one": torch.tensor(1.0) * optimizer.loss_scale})

    assert optimizer.master_weights["one"].item() < 0.8


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_training_is_as_good_as_torch_autocast_with_grad_scaler(precision):
    """Same data, same start, same optimizer; autocast rounds elsewhere, so losses agree closely, not in every bit."""
    model, other = build(), build()
    optimizer = wrap(model, chosen=options(precision, max_grad_norm=0.0))
    base = torch.optim.AdamW(other.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=7, enabled=precision == "fp16")
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16

    ours = train(model, optimizer, range(60), spoil={5} if precision == "fp16" else set())
    theirs = []
    for step in range(60):
        base.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = loss_of(other, step)
        scaler.scale(loss * 1e7 if step == 5 and precision == "fp16" else loss).backward()
        scaler.step(base)
        scaler.update()
        theirs.append(loss.item())

    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) < 0.05
    assert optimizer.loss_scale == scaler.get_scale()
