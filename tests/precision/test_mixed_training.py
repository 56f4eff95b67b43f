"""The optimizer around real models: casting, hooks, schedulers, accumulation, and everything refused."""

import copy
import gc
import math
import pickle
import warnings
import weakref
from collections import OrderedDict
from typing import NamedTuple

import pytest
import torch
from precision_models import Net, assert_same, bits, build, loss_of, options, train, wrap

from model_checkpoint.precision import MixedPrecisionOptimizer, MixedPrecisionOptions, Precision, StepReason
from model_checkpoint.precision.casting import cast_floats
from model_checkpoint.precision.errors import InvalidArgument, StepRefused, UnsupportedOptimizer, WeightsChanged


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


def test_an_fp32_model_keeps_its_weights_as_masters_and_its_parameter_objects():
    model = build()
    before = {name: (parameter, parameter.detach().clone()) for name, parameter in model.named_parameters()}

    optimizer = wrap(model)

    for name, parameter in model.named_parameters():
        assert parameter is before[name][0]
        assert torch.equal(optimizer.master_weights[name], before[name][1])
    assert model.mix.weight.dtype == torch.float16


def test_a_half_model_gets_upcast_masters():
    model = build().half()

    optimizer = wrap(model)

    assert torch.equal(optimizer.master_weights["mix.weight"], model.mix.weight.float())
    assert model.norm.weight.dtype == torch.float32


def test_fp32_parameters_are_their_own_master():
    model = build()

    optimizer = wrap(model)

    slot = optimizer.roster.by_name["norm.weight"]
    assert slot.master is model.norm.weight
    assert any(parameter is model.norm.weight for parameter in optimizer.param_groups[0]["params"])


def test_fp64_is_refused_by_name():
    with pytest.raises(InvalidArgument, match=r"embed.weight: dtype is torch.float64, expected"):
        wrap(build().double())


def test_layers_are_excluded_by_class_and_by_qualified_name():
    model = build()

    wrap(model, chosen=options(fp32_layer_patterns=("LayerNorm", "^out$")))

    assert model.norm.weight.dtype == model.out.weight.dtype == model.embed.weight.dtype == torch.float32
    assert model.mix.weight.dtype == torch.float16


def test_outputs_are_fp32_and_inputs_are_cast():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    wrap(model)

    assert model(torch.randn(8, 4)).dtype == torch.float32
    assert model[1].running_mean.dtype == torch.float32


def test_without_io_casting_the_model_speaks_half():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    wrap(model, chosen=options(cast_model_io=False))

    assert model(torch.randn(8, 4).half()).dtype == torch.float16


@pytest.mark.parametrize("shape", ["transformer", "cnn", "lstm"])
def test_common_shapes_of_models_train(shape):
    torch.manual_seed(0)
    if shape == "transformer":
        model = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        data = torch.randn(4, 6, 16)
    elif shape == "cnn":
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(288, 2),
        )
        data = torch.randn(4, 3, 8, 8)
    else:
        model = torch.nn.LSTM(8, 16, batch_first=True)
        data = torch.randn(4, 5, 8)
    optimizer = wrap(model, chosen=options("bf16" if shape == "lstm" else "fp16"))

    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        output = model(data)
        loss = (output[0] if isinstance(output, tuple) else output).square().mean()
        optimizer.backward(loss)
        optimizer.step()
        losses.append(loss.item())

    assert losses[-1] < losses[0]
    assert optimizer.skipped_steps == 0


def test_multihead_attention_is_one_unit_even_when_only_a_part_is_named():
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    wrap(model, chosen=options(auto_exclude_sensitive_layers=False, fp32_layer_patterns=("out_proj",)))

    out, _ = model(*[torch.randn(2, 3, 8)] * 3)

    assert out.dtype == torch.float32
    assert model.in_proj_weight.dtype == torch.float32


def test_tied_weights_share_one_master_and_one_fate():
    model = build()
    model.out = torch.nn.Linear(16, 12, bias=False)
    model.mix, model.norm = torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)
    model.out.weight = model.embed.weight

    optimizer = wrap(model)
    train(model, optimizer, range(3))

    assert model.out.weight is model.embed.weight
    assert model.out.weight.dtype == torch.float32  # the embedding is excluded, so its twin is too
    assert optimizer.roster.by_name["out.weight"] is optimizer.roster.by_name["embed.weight"]


def test_a_torch_optimizer_in_every_sense():
    model = build()
    optimizer = wrap(model)

    assert isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.param_groups is optimizer.base_optimizer.param_groups
    assert optimizer.state is optimizer.base_optimizer.state
    assert optimizer.defaults is optimizer.base_optimizer.defaults


@pytest.mark.parametrize("order", ["before", "after on base", "after on wrapper"])
def test_schedulers_made_anywhere_drive_the_learning_rate_without_warnings(order):
    model = build()
    base = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(base, 1, 0.5) if order == "before" else None
    optimizer = MixedPrecisionOptimizer(base, options(), model=model)
    if scheduler is None:
        scheduler = torch.optim.lr_scheduler.StepLR(base if "base" in order else optimizer, 1, 0.5)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(3):
            train(model, optimizer, [step])
            scheduler.step()

    assert optimizer.learning_rate == 0.125
    assert base.param_groups[0]["lr"] == 0.125


def test_an_added_scheduler_rests_while_steps_are_skipped():
    model = build()
    optimizer = wrap(model)
    scheduler = optimizer.add_scheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))

    for step in range(4):
        train(model, optimizer, [step], spoil={1, 2})
        scheduler.step()

    assert optimizer.skipped_steps == 2
    assert optimizer.learning_rate == pytest.approx(1e-2 * 0.25)


def test_a_metric_scheduler_cannot_be_held():
    optimizer = wrap(build())

    with pytest.raises(InvalidArgument, match="ReduceLROnPlateau follows a metric"):
        optimizer.add_scheduler(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))


def test_skipped_steps_leave_adams_step_alone():
    model = build()
    optimizer = wrap(model)

    train(model, optimizer, range(5), spoil={1, 3})

    steps = {int(entries["step"]) for entries in optimizer.state.values()}
    assert steps == {3}
    assert (optimizer.step_count, optimizer.skipped_steps) == (5, 2)


def test_stepping_the_base_directly_is_refused():
    optimizer = wrap(build())

    with pytest.raises(StepRefused, match=r"AdamW.step\(\): this optimizer holds FP32 masters"):
        optimizer.base_optimizer.step()


def test_wrapping_twice_is_refused():
    optimizer = wrap(build())

    with pytest.raises(UnsupportedOptimizer, match="already wrapped"):
        MixedPrecisionOptimizer(optimizer.base_optimizer)


def test_closures_lbfgs_sparse_and_foreign_optimizers_are_refused_by_name():
    model = build()
    with pytest.raises(UnsupportedOptimizer, match="LBFGS: steps by a closure"):
        wrap(model, torch.optim.LBFGS)
    with pytest.raises(UnsupportedOptimizer, match="SparseAdam: works on sparse gradients"):
        wrap(model, lambda p: torch.optim.SparseAdam(list(p)))
    with pytest.raises(UnsupportedOptimizer, match=r"got str, expected a torch.optim.Optimizer"):
        MixedPrecisionOptimizer("adam")
    optimizer = wrap(model)
    with pytest.raises(UnsupportedOptimizer, match=r"step\(closure\): closures are not supported"):
        optimizer.step(lambda: 1.0)
    with pytest.raises(UnsupportedOptimizer, match=r"step\(closure\): closures are not supported"):
        optimizer.step(closure=lambda: 1.0)


def test_sparse_gradients_are_refused_by_name():
    model = torch.nn.Embedding(10, 4, sparse=True)
    optimizer = wrap(model, lambda p: torch.optim.SGD(p, lr=0.1))
    optimizer.backward(model(torch.tensor([1, 2])).sum())

    with pytest.raises(UnsupportedOptimizer, match=r"weight: gradient layout is torch.sparse_coo, expected dense"):
        optimizer.step()


def test_pickling_and_deep_copies_are_refused():
    with pytest.raises(StepRefused, match="cannot be pickled or deep-copied"):
        copy.deepcopy(wrap(build()))


def test_loading_a_state_dict_behind_its_back_is_noticed_and_can_be_taken_over():
    model, other = build(), build(seed=1)
    optimizer = wrap(model)
    train(model, optimizer, range(2))
    model.load_state_dict(other.state_dict())
    optimizer.backward(loss_of(model, 2))

    with pytest.raises(WeightsChanged, match=r"opt.sync_from_model\(\)"):
        optimizer.step()
    changed = optimizer.sync_from_model()
    optimizer.step()

    assert "mix.weight" in changed
    assert optimizer.skipped_steps == 0


def test_synchronising_takes_only_what_changed():
    model = build()
    optimizer = wrap(model)
    before = optimizer.master_weights["out.weight"].clone()
    with torch.no_grad():
        model.mix.weight.zero_()

    assert optimizer.sync_from_model() == ["mix.weight"]

    assert optimizer.master_weights["mix.weight"].abs().sum() == 0
    assert torch.equal(optimizer.master_weights["out.weight"], before)


def test_replaced_parameter_objects_are_noticed():
    model = build()
    optimizer = wrap(model)
    model.load_state_dict(build(seed=1).half().state_dict(), assign=True)

    with pytest.raises(WeightsChanged, match="another parameter object"):
        optimizer.step()


def test_a_step_without_a_scaled_loss_is_refused():
    model = build()
    optimizer = wrap(model)
    loss_of(model, 0).backward()

    with pytest.raises(
        StepRefused, match=r"no loss was scaled since the last step, but gradients would be divided by 1024"
    ):
        optimizer.step()


def test_bf16_may_be_stepped_after_a_plain_backward():
    model = build()
    optimizer = wrap(model, chosen=options("bf16"))
    loss_of(model, 0).backward()

    assert optimizer.step().applied


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


def test_dropping_a_bad_batch_forgets_its_loss():
    model = build()
    optimizer = wrap(model)
    optimizer.backward(loss_of(model, 0) * math.nan)

    optimizer.zero_grad()
    optimizer.backward(loss_of(model, 0))

    assert optimizer.step().applied


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


def test_an_added_group_gets_masters_and_cannot_be_added_twice():
    model, extra = build(), torch.nn.Linear(3, 3)
    optimizer = wrap(model)
    with pytest.raises(InvalidArgument, match="in another group already"):
        optimizer.add_param_group({"params": [model.mix.weight]})

    optimizer.add_param_group({"params": extra.parameters(), "lr": 0.5})

    assert extra.weight.dtype == torch.float16
    assert optimizer.param_groups[1]["params"][0].dtype == torch.float32
    assert len(optimizer.session.fallback.groups) == 2


def test_state_made_before_wrapping_moves_to_the_masters():
    model = build()
    base = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss_of(model, 0).backward()
    base.step()
    moment = base.state[model.mix.weight]["exp_avg"]

    optimizer = MixedPrecisionOptimizer(base, options(), model=model)

    assert base.state[optimizer.roster.by_name["mix.weight"].master]["exp_avg"] is moment


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


def test_frozen_parameters_follow_the_precision_of_their_module():
    model = build()
    model.mix.requires_grad_(False)
    optimizer = MixedPrecisionOptimizer(
        torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2), options(), model=model
    )

    train(model, optimizer, range(3))

    assert model.mix.weight.dtype == torch.float16
    assert "mix.weight" not in optimizer.master_weights
    assert set(optimizer.roster.untrained()) == {"mix.weight", "mix.bias", "seen"}


def test_wrapper_prefixes_are_stripped_from_names():
    class Shell(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.module = inner

        def forward(self, words):
            return self.module(words)

    model = Shell(Net())

    assert "mix.weight" in wrap(model).master_weights


def test_a_compiled_model_is_named_like_the_plain_one():
    model = torch.compile(Net(), backend="eager")

    assert "mix.weight" in wrap(model).master_weights


def test_named_parameters_of_the_base_are_used_without_a_model():
    model = build()

    optimizer = MixedPrecisionOptimizer(torch.optim.SGD(model.named_parameters(), lr=0.1), options())

    assert "mix.weight" in optimizer.master_weights


def test_positions_are_the_names_when_there_are_no_others():
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))

    assert list(optimizer.master_weights) == ["group0.param0"]


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


def test_a_second_optimizer_finds_the_fp32_weights_the_first_one_cast():
    model = build()
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim == 1]

    first = MixedPrecisionOptimizer(torch.optim.Muon(matrices, lr=1e-2), options(), model=model)
    assert model(torch.tensor([1])).dtype == torch.float32
    second = MixedPrecisionOptimizer(torch.optim.AdamW(vectors), options(), model=model, scaler=first.scaler)

    masters = {**first.master_weights, **second.master_weights}
    assert all(torch.equal(masters[name], weight) for name, weight in weights.items())


def test_a_write_of_the_same_values_is_no_change():
    """DistributedDataParallel broadcasts the weights when it is made."""
    model = build()
    optimizer = wrap(model)
    model.load_state_dict(model.state_dict())
    optimizer.backward(loss_of(model, 0))

    assert optimizer.step().applied


def test_models_and_optimizers_can_be_freed_and_wrapped_anew():
    model = build()
    first = wrap(model)
    first.fallback_to_fp32()
    gone = weakref.ref(first)
    del first
    gc.collect()

    second = wrap(model)
    train(model, second, range(2))
    kept = weakref.ref(model)

    assert gone() is None
    assert model.mix.weight.dtype == torch.float16
    del model, second
    gc.collect()
    assert kept() is None


def test_a_hooked_model_can_be_copied_and_pickled():
    model = build()
    wrap(model)

    twin = copy.deepcopy(model)
    again = pickle.loads(pickle.dumps(model))

    words = torch.tensor([1, 2])
    assert torch.equal(twin(words), model(words))
    assert torch.equal(again(words), model(words))


def test_converting_the_model_behind_its_back_is_noticed():
    model = build()
    optimizer = wrap(model)
    model.float()

    with pytest.raises(WeightsChanged, match="changed outside the optimizer"):
        optimizer.step()
    optimizer.sync_from_model()

    assert model.mix.weight.dtype == torch.float16
    train(model, optimizer, range(3))
    assert optimizer.skipped_steps == 0


def test_loading_a_model_in_fallback_reaches_the_masters():
    model, other = build(), build(seed=1)
    optimizer = wrap(model)
    optimizer.fallback_to_fp32()

    model.load_state_dict(other.state_dict())
    train(model, optimizer, [])

    assert torch.equal(optimizer.master_weights["mix.weight"], other.mix.weight)


def test_gradients_may_be_zeroed_between_scaling_and_backward():
    model = build()
    optimizer = wrap(model)

    for step in range(4):
        scaled = optimizer.scale_loss(loss_of(model, step))
        optimizer.zero_grad()
        scaled.backward()
        assert optimizer.step().applied


def test_a_dropped_bad_loss_does_not_excuse_a_later_overflow():
    model = build()
    optimizer = wrap(model)
    optimizer.backward(loss_of(model, 0) * math.nan)
    optimizer.zero_grad()
    optimizer.backward(loss_of(model, 1) * 1e7)

    assert optimizer.step().reason is StepReason.OVERFLOW
    assert optimizer.loss_scale == 512.0


def test_empty_and_scalar_parameters_step():
    weights = {"none": torch.zeros(0, 3), "one": torch.tensor(1.0)}
    optimizer = MixedPrecisionOptimizer(torch.optim.AdamW([{"params": []}], lr=0.1, fused=True), options())
    optimizer.set_parameters(weights)

    for _ in range(3):
        optimizer.step({"none": torch.zeros(0, 3), "one": torch.tensor(1.0) * optimizer.loss_scale})

    assert optimizer.master_weights["one"].item() < 0.8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own look at it
def test_a_compiled_model_trains():
    model = build()
    optimizer = wrap(model)
    compiled = torch.compile(model, backend="eager")

    losses = train(compiled, optimizer, range(30))

    assert losses[-1] < losses[0] / 2
    assert optimizer.skipped_steps == 0


def test_structured_inputs_and_outputs_are_cast_and_keep_their_kind():
    class Answer(OrderedDict):
        """As the outputs of transformers models are."""

    class Pair(NamedTuple):
        first: torch.Tensor
        second: int

    half = cast_floats(
        Answer(x=torch.ones(1), many=[torch.ones(1), (torch.ones(1), "text")], pair=Pair(torch.ones(1), 3)),
        torch.float16,
    )

    assert type(half) is Answer
    assert half["x"].dtype == half["many"][1][0].dtype == half["pair"].first.dtype == torch.float16
    assert (type(half["pair"]), half["pair"].second, half["many"][1][1]) == (Pair, 3, "text")


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
