"""What a checkpoint stores of weights and of the base optimizer comes back bit for bit, or is refused by name."""

import dataclasses

import pytest
import torch
from tests.precision.precision_models import assert_same, bits, build, options, train, wrap

from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager
from model_checkpoint.precision import MixedPrecisionOptimizer, from_tree, to_tree
from model_checkpoint.precision.checkpoints.weights import StoredWeight, same_bits
from model_checkpoint.precision.errors import CheckpointRefused, InvalidArgument, UnsupportedOptimizer

LAYOUTS = {
    "rows": lambda tensor: tensor.contiguous(),
    "channels last": lambda tensor: tensor.contiguous(memory_format=torch.channels_last),
    "every second": lambda tensor: tensor.repeat_interleave(2, dim=3)[..., ::2],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_weights_are_the_same_by_their_bits_however_they_lie(layout, dtype):
    lay = LAYOUTS[layout]
    one = torch.zeros(2, 3, 2, 2, dtype=dtype)
    one[0, 1] = float("nan")
    other = one.clone()
    other[1, 2, 0, 0] = -0.0

    assert same_bits(lay(one), lay(one.clone()))
    assert same_bits(lay(one), one)
    assert not same_bits(lay(one), lay(other))
    assert not same_bits(lay(one), lay(one).to(torch.int64))
    assert not same_bits(lay(one), lay(one).transpose(0, 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_lone_weight_has_its_bytes_whatever_its_stride_says(dtype):
    lone = torch.arange(15.0, dtype=dtype).reshape(3, 5)[1:2, 2:3].t()

    assert same_bits(lone, torch.full((1, 1), 7, dtype=dtype))
    assert StoredWeight.of(lone).data == StoredWeight.of(torch.full((1, 1), 7, dtype=dtype)).data


@pytest.mark.parametrize("shape", [(0,), (3, 0), (2, 3), ()])
def test_a_weight_comes_back_from_its_bytes(shape):
    weight = StoredWeight.of(torch.randn(shape).half())

    again = StoredWeight.from_bytes(weight.data, dtype=torch.float16, shape=shape)

    assert same_bits(again.tensor, weight.tensor)
    with pytest.raises(InvalidArgument, match=r"bytes, expected .* It is damaged"):
        StoredWeight.from_bytes(weight.data + b"x", dtype=torch.float16, shape=shape)


def resumed(make_base, **chosen):
    """A run saved and restored into a twin; returns both optimizers."""
    model, twin = build(), build(1)
    first, second = (wrap(one, make_base, options(**chosen)) for one in (model, twin))
    train(model, first, range(4))
    Manager.restore_checkpoint(second, from_tree(to_tree(Manager.create_checkpoint(first))))
    return first, second


def test_a_learning_rate_that_is_a_tensor_stays_the_same_object():
    """Schedulers hold this very tensor."""
    rates = []

    def base(parameters):
        rates.append(torch.tensor(0.5 if rates else 1e-2))
        return torch.optim.Adam(parameters, lr=rates[-1], fused=True)

    first, second = resumed(base)

    assert second.param_groups[0]["lr"] is rates[1]
    assert rates[1] == rates[0] == first.param_groups[0]["lr"]
    assert_same(bits(first), bits(second))


@pytest.mark.parametrize("fused", [True, False])
def test_a_run_in_channels_last_resumes_bit_for_bit(fused, tmp_path):
    """What comes from a file lies in rows; a fused step over weights in another order would mix up the moments."""

    def start():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 2))
        model = model.to(memory_format=torch.channels_last)
        return model, wrap(model, lambda p: torch.optim.AdamW(p, lr=1e-2, fused=fused), options("bf16"))

    def run(model, optimizer, steps):
        for step in steps:
            data = torch.randn(4, 4, 8, 8, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            optimizer.backward(model(data.to(memory_format=torch.channels_last)).float().square().mean())
            optimizer.step()

    unbroken, resumed = start(), start()
    run(*unbroken, range(3))
    Manager.save_checkpoint(Manager.create_checkpoint(unbroken[1]), tmp_path / "here")
    Manager.load_and_restore(resumed[1], tmp_path / "here")
    for one in (unbroken, resumed):
        run(*one, range(3, 6))

    assert_same(bits(unbroken[1]), bits(resumed[1]))


def test_measured_times_go_on_after_a_restore_and_start_over_with_a_reset():
    first, second = resumed(None, enable_performance_monitoring=True)

    told = second.session.performance
    assert (told.step_count, told.total_time_seconds) == (4, first.session.performance.total_time_seconds)
    second.session.reset()
    assert second.session.performance.step_count == 0


def test_lists_in_the_state_of_a_base_come_back_and_unknown_values_are_refused():
    class Historic(torch.optim.SGD):
        """Remembers what it did in a list."""

        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter].setdefault("history", []).append(torch.tensor(len(self.state)))
            return super().step(closure)

    first, second = resumed(lambda parameters: Historic(parameters, lr=0.01))

    histories = [[entry["history"] for entry in one.base_optimizer.state.values()] for one in (first, second)]
    assert [len(history) for history in histories[0]] == [4] * 7
    assert histories[0] == histories[1]
    next(iter(first.base_optimizer.state.values()))["history"] = object()
    with pytest.raises(UnsupportedOptimizer, match="a value is a object, expected tensors and plain values"):
        Manager.create_checkpoint(first)


def test_a_given_state_of_another_model_is_refused():
    optimizer = wrap(build())
    other = torch.optim.AdamW(torch.nn.Linear(2, 2).parameters())

    with pytest.raises(InvalidArgument, match="holds 2 parameters, expected 7"):
        Manager.create_checkpoint(optimizer, other.state_dict())
    with pytest.raises(InvalidArgument, match=r"has keys \['x'\], expected state and param_groups"):
        Manager.create_checkpoint(optimizer, {"x": 1})


@pytest.mark.parametrize(("given", "called"), [(None, "None"), (7, "a int")])
def test_what_is_no_checkpoint_is_called_what_it_is(given, called):
    (finding,) = Manager.inspect_checkpoint(given)

    assert str(finding) == f"error: checkpoint: is {called}, expected a MixedPrecisionCheckpoint"


def test_an_inspection_with_an_optimizer_says_what_does_not_fit(checkpoint):
    wide = wrap(build(width=32))
    assert Manager.inspect_checkpoint(checkpoint) == []

    found = Manager.inspect_checkpoint(checkpoint, wide)

    assert any("mix.weight" in str(one) and "shape" in str(one) for one in found)
    with pytest.raises(CheckpointRefused, match=r"mix\.weight"):
        Manager.restore_checkpoint(wide, checkpoint)


def test_a_buffer_of_another_shape_is_refused_by_name(checkpoint):
    model = build()
    model.register_buffer("seen", torch.zeros(3, dtype=torch.int64))

    with pytest.raises(CheckpointRefused, match=r"seen: has shape \(\), the model \(3,\)"):
        Manager.restore_checkpoint(wrap(model), checkpoint)


def test_buffers_are_named_where_no_model_was_given_to_restore_them_into(run, checkpoint):
    bare = MixedPrecisionOptimizer(torch.optim.AdamW(run[0].named_parameters(), lr=1e-2), options())

    found = [str(one) for one in Manager.inspect_checkpoint(checkpoint, bare)]

    assert "warning: seen: is frozen or a buffer, and no model was given to restore it into" in found


def test_a_checkpoint_without_a_base_state_leaves_that_of_the_optimizer_alone(run, checkpoint):
    model, optimizer = run
    train(model, optimizer, range(8, 10))
    moments = bits(optimizer)["state"]
    alone = dataclasses.replace(checkpoint, base_optimizer_state=None)

    Manager.restore_checkpoint(optimizer, alone)

    assert_same(bits(optimizer)["state"], moments)
    assert optimizer.step_count == 8
