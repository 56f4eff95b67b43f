"""Models under the optimizer: masters, names, excluded layers, hooks, and the shapes people train."""

import copy
import gc
import pickle
import weakref
from collections import OrderedDict
from typing import NamedTuple

import pytest
import torch
from tests.precision.precision_models import Net, build, loss_of, options, train, wrap

from model_checkpoint.precision import MixedPrecisionOptimizer
from model_checkpoint.precision.errors import InvalidArgument
from model_checkpoint.precision.parameters.casting import cast_floats


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

    slot = optimizer.parameter_table.by_name["norm.weight"]
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


class Widening(torch.nn.Module):
    """An FP32 buffer and an FP32 function between half layers, as position codes and softmax often are."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (torch.nn.Linear(4, 4) for _ in range(3))
        self.register_buffer("positions", torch.arange(4.0))

    def forward(self, values):
        moved = self.second(self.first(values) + self.positions)
        return self.third(moved.float().softmax(-1))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("fallen", [False, True])
def test_buffers_and_functions_that_widen_activations_do_no_harm(precision, fallen):
    model = build(model=Widening)
    optimizer = wrap(model, chosen=options(precision))
    if fallen:
        optimizer.fallback_to_fp32()

    optimizer.backward(model(torch.ones(3, 4)).square().mean())

    assert optimizer.step().applied
    assert all(one.grad is not None for one in model.parameters())
    assert model.positions.dtype == torch.float32
    with torch.no_grad():
        assert model.second(torch.ones(3, 4)).dtype == model.second.weight.dtype


@pytest.mark.parametrize("half_gradients", [False, True])
@pytest.mark.parametrize("first_steps", [True, False])
def test_layers_two_optimizers_share_fall_back_and_return_as_one(half_gradients, first_steps):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    chosen = options(accumulate_in_fp32=not half_gradients)
    matrices = [one for one in model.parameters() if one.ndim == 2]
    vectors = [one for one in model.parameters() if one.ndim == 1]
    first = wrap(model, lambda _: torch.optim.Muon(matrices, lr=0.01), chosen)
    second = wrap(model, lambda _: torch.optim.AdamW(vectors, lr=0.01), chosen, scaler=first.scaler)

    def go(between=None):
        before = second.master_weights["0.bias"].clone()
        for one in (first, second):
            one.zero_grad()
        first.backward(model(torch.ones(3, 4)).square().mean())
        for one in (first, second) if first_steps else (second, first):
            assert one.step().applied
            if one is first and between is not None:
                between()
        assert not torch.equal(second.master_weights["0.bias"], before)

    go()
    go(first.fallback_to_fp32)  # its window is done, that of the other may be open
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    go()
    go(first.reset)
    assert {one.dtype for one in model.parameters()} == {torch.float16}
    go()


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
    assert optimizer.parameter_table.by_name["out.weight"] is optimizer.parameter_table.by_name["embed.weight"]


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

    assert base.state[optimizer.parameter_table.by_name["mix.weight"].master]["exp_avg"] is moment


def test_frozen_parameters_follow_the_precision_of_their_module():
    model = build()
    model.mix.requires_grad_(False)
    optimizer = MixedPrecisionOptimizer(
        torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2), options(), model=model
    )

    train(model, optimizer, range(3))

    assert model.mix.weight.dtype == torch.float16
    assert "mix.weight" not in optimizer.master_weights
    assert set(optimizer.parameter_table.untrained()) == {"mix.weight", "mix.bias", "seen"}


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


def test_a_model_of_one_layer_takes_its_inputs_as_they_are_without_io_casting():
    model = torch.nn.Linear(4, 2)
    wrap(model, chosen=options(cast_model_io=False))

    assert model(torch.ones(1, 4).half()).dtype == torch.float16
    with pytest.raises(RuntimeError, match="must have the same dtype"):
        model(torch.ones(1, 4))


class Noting(torch.nn.Module):
    """Notes in which dtype its input came; with a weight of its own it is a container all the same."""

    def __init__(self, *, inner):
        super().__init__()
        self.seen = None
        if inner:
            self.weight, self.inner = torch.nn.Parameter(torch.ones(4)), torch.nn.Linear(4, 4)

    def forward(self, values):
        self.seen = values.dtype
        return values


@pytest.mark.parametrize("inner", [True, False], ids=["a container", "without weights"])
def test_only_layers_with_weights_of_their_own_narrow_what_they_are_given(inner):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Noting(inner=inner))
    wrap(model)

    model[1](torch.ones(1, 4))

    assert model[1].seen == torch.float32
    assert not any(module._forward_pre_hooks for module in model[1].modules() if not list(module.parameters()))


@pytest.mark.parametrize("frozen", [True, False])
def test_fp32_values_are_kept_only_of_weights_that_may_be_trained_later(frozen):
    model = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False))
    fine = 1.0 + 2.0**-20  # no half
    with torch.no_grad():
        model[1].weight.fill_(fine)
    model[1].weight.requires_grad_(not frozen)
    optimizer = wrap(model, lambda _: torch.optim.SGD(model[0].parameters(), lr=0.1))

    model[1].weight.requires_grad_(True)
    optimizer.add_param_group({"params": [model[1].weight]})

    assert optimizer.master_weights["1.weight"].item() == (1.0 if frozen else fine)


def test_an_excluded_layer_without_weights_computes_in_fp32_too():
    seen, model = [], torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4, elementwise_affine=False))
    wrap(model)
    model[1].register_forward_pre_hook(lambda _, given: seen.append(given[0].dtype))
    assert (model[1](torch.ones(1, 4).half()).dtype, seen) == (torch.float16, [torch.float32])
