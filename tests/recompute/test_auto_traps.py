"""What goes wrong elsewhere: buffers, generators, autocast, in-place writes, reuse, state left behind."""

import copy
import gc
import pickle
import random
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from auto_models import Block, Residual, assert_same_step, cnn, mlp, runtime_of, step, transformer
from torch import nn

from model_checkpoint.recompute.auto_errors import AutoCheckpointWarning, ModelRefused, ValueChanged
from model_checkpoint.recompute.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.frame import Frame, is_recomputing, local
from model_checkpoint.recompute.peak import measure_peak
from model_checkpoint.recompute.schedule import Keep, Region


def leanest(model, sample, **options):
    """Plan for the smallest peak, so that everything is recomputed."""
    auto_checkpoint(model, 1.0, sample, **options)
    auto_checkpoint(model, model.plan.floor_bytes, profile=model.plan.profile, **options)
    assert "recomputed" in model.plan.fates()
    return model


def every_stage(count):
    return tuple(Region(start=i, stop=i, body=(Keep(stage=i),)) for i in range(count))


def whole(count):
    return (Region(start=0, stop=count - 1, body=tuple(Keep(stage=i) for i in range(count))),)


def test_the_same_object_comes_back_and_remove_undoes_the_patch():
    model, x = mlp(16, 6), torch.randn(8, 16)
    keys, kind = list(model.state_dict()), type(model)

    patched = auto_checkpoint(model, 0.6, x)

    assert patched is model
    assert type(model) is kind
    assert list(model.state_dict()) == keys
    model.plan.remove()
    assert not hasattr(model, "plan")
    assert all("_call_impl" not in module.__dict__ for module in model.modules())


def test_profiling_leaves_gradients_buffers_generators_and_flags_alone():
    torch.manual_seed(3)
    model, x = cnn(4, 6), torch.randn(2, 3, 8, 8)
    model[2].eval()
    model(x).sum().backward()
    gradients = [p.grad for p in model.parameters()]
    values = [g.clone() for g in gradients]
    buffers = [b.clone() for b in model.buffers()]
    flags = [m.training for m in model.modules()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()

    auto_checkpoint(model, 0.7, x)

    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
    assert all(torch.equal(g, v) for g, v in zip(gradients, values, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), buffers, strict=True))
    assert [m.training for m in model.modules()] == flags
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tobytes() == states[2]


def test_batch_norm_statistics_move_once_per_step():
    torch.manual_seed(0)
    model, x = cnn(4, 6), torch.randn(2, 3, 8, 8)
    leanest(model, x)
    step(model, (x,))

    assert model[0][1].num_batches_tracked == 1


def test_spectral_norm_is_replayed_from_its_old_vectors():
    torch.manual_seed(0)
    layers = [nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)) for _ in range(4)]
    model, x = nn.Sequential(*[nn.Sequential(layer, nn.Tanh()) for layer in layers]), torch.randn(4, 8)
    twin = copy.deepcopy(model)
    leanest(twin, x)
    for _ in range(3):
        assert_same_step(step(twin, (x,)), step(model, (x,)))


def test_a_stage_that_writes_into_its_input_gets_a_copy():
    torch.manual_seed(0)

    def build():
        torch.manual_seed(0)
        return nn.Sequential(*[m for _ in range(5) for m in (nn.Linear(8, 8), nn.ReLU(inplace=True))])

    model, twin, x = build(), build(), torch.randn(4, 8)
    auto_checkpoint(twin, 1.0, x)
    assert any(stage.writes for stage in twin.plan.stages)
    expected = step(model, (x,))
    with runtime_of_plan(twin) as runtime:
        for schedule in (every_stage(10), whole(10), nested(10)):
            runtime.use(schedule)
            assert_same_step(step(twin, (x,)), expected)


def nested(count):
    inner = Region(start=1, stop=count - 2, body=tuple(Keep(stage=i) for i in range(1, count - 1)))
    return (Region(start=0, stop=count - 1, body=(Keep(stage=0), inner, Keep(stage=count - 1))),)


def runtime_of_plan(model, **options):
    """A runtime with the facts found by planning, to try any schedule."""
    from model_checkpoint.recompute.runtime import Runtime, StageCall, StageFacts

    plan = model.plan
    plan.remove()
    names = StageFacts.__dataclass_fields__
    facts = [StageFacts(**{n: getattr(line, n) for n in names}) for line in plan.stages]
    modules = [stage.module for stage in plan.profile.found.stages]
    stages = [StageCall(i, f, m) for i, (f, m) in enumerate(zip(facts, modules, strict=True))]
    return Runtime(model, stages, **options)


class Lucky(nn.Module):
    """Draws from Python's and NumPy's generators."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x).tanh() * (random.random() + float(np.random.rand()))


def test_python_and_numpy_generators_are_replayed():
    model, x = nn.Sequential(*[Lucky() for _ in range(4)]), torch.randn(2048, 8)  # states cost 10 kB each
    twin = copy.deepcopy(model)
    leanest(twin, x, determinism="hash")

    def seeded(model):
        random.seed(5)
        np.random.seed(5)
        return (*step(model, (x,)), random.getstate(), np.random.get_state()[1].tobytes())

    got, expected = seeded(twin), seeded(model)

    assert_same_step(got[:4], expected[:4])
    assert got[4:] == expected[4:]


def test_autocast_is_replayed_when_backward_runs_outside_of_it():
    torch.manual_seed(0)
    model, x = transformer(16, 4), torch.randn(2, 6, 16)
    twin = copy.deepcopy(model)

    def one(model):
        torch.manual_seed(1)
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    leanest(twin, x, determinism="hash")

    assert all(torch.equal(a, b) for a, b in zip(one(twin), one(model), strict=True))


@pytest.mark.parametrize("mode", ["drop", "drop+masks"])
def test_drop_under_autocast_gives_the_same_gradients(mode):
    torch.manual_seed(0)
    model, x = transformer(16, 3), torch.randn(2, 6, 16)
    twin = copy.deepcopy(model)

    def one(model):
        torch.manual_seed(1)
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    with runtime_of(twin) as runtime:
        runtime.use(tuple(Keep(stage=i, mode=mode) for i in range(3)))
        got = one(twin)

    assert all(torch.equal(a, b) for a, b in zip(got, one(model), strict=True))


def test_backward_inside_autocast_recomputes_plain_layers_plainly():
    torch.manual_seed(0)
    model, x = mlp(16, 6), torch.randn(4, 16)
    twin = copy.deepcopy(model)
    leanest(twin, x, determinism="hash")

    for each in (model, twin):
        loss = each(x).pow(2).mean()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss.backward()

    assert all(torch.equal(a.grad, b.grad) for a, b in zip(twin.parameters(), model.parameters(), strict=True))


def test_train_flags_are_those_of_the_forward_pass():
    torch.manual_seed(0)
    model, x = transformer(16, 4, rate=0.5), torch.randn(2, 6, 16)
    twin = copy.deepcopy(model)
    leanest(twin, x)

    def one(model):
        torch.manual_seed(1)
        model.train()
        loss = model(x).pow(2).mean()
        model.eval()
        loss.backward()
        return [p.grad for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(one(twin), one(model), strict=True))
    assert not any(m.training for m in twin.modules())


def test_forward_hooks_run_again_and_can_tell():
    model, x = mlp(8, 6), torch.randn(4, 8)
    seen = []
    for position in (0, 5):  # the last stage of a region is not cut short either
        model[position].register_forward_hook(lambda *_, p=position: seen.append((p, is_recomputing())))

    with runtime_of(model) as runtime:
        runtime.use(whole(6))
        step(model, (x,))

    assert seen == [(0, False), (5, False), (0, True), (5, True)]
    assert not is_recomputing()


def test_a_module_used_twice_is_two_stages():
    torch.manual_seed(0)
    shared = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.2))
    model = nn.Sequential(shared, nn.Linear(8, 8), shared, nn.Linear(8, 8), shared)
    x, twin = torch.randn(4, 8), copy.deepcopy(model)
    auto_checkpoint(twin, 1.0, x)

    names = [stage.name for stage in twin.plan.stages]

    assert len(names) == len(set(names))
    assert sum(stage.shared for stage in twin.plan.stages) >= 3
    expected = step(model, (x,))
    count = len(names)
    with runtime_of_plan(twin, prefetch=True) as runtime:
        for schedule in (every_stage(count), whole(count), nested(count)):
            runtime.use(schedule)
            assert_same_step(step(twin, (x,)), expected)


def test_integer_inputs_masks_and_frozen_prefixes_are_legal():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(11, 16)
            self.layers = nn.ModuleList([nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(5)])
            self.head = nn.Linear(16, 11)

        def forward(self, tokens, mask=None, extra=("a", 1)):
            hidden = self.embed(tokens)
            for layer in self.layers:
                hidden = layer(hidden, src_mask=mask)
            return {"logits": self.head(hidden), "extra": extra}

    model = Net()
    model.embed.requires_grad_(False)
    model.layers[0].requires_grad_(False)
    sample = {"tokens": torch.randint(0, 11, (2, 7)), "mask": torch.triu(torch.ones(7, 7, dtype=torch.bool), 1)}
    twin = copy.deepcopy(model)

    def loss(output):
        return F.cross_entropy(output["logits"].flatten(0, 1), sample["tokens"].flatten())

    leanest(twin, sample, loss=loss)

    def one(model):
        torch.manual_seed(1)
        model.zero_grad()
        loss(model(**sample)).backward()
        return [p.grad for p in model.parameters() if p.requires_grad]

    assert all(torch.equal(a, b) for a, b in zip(one(twin), one(model), strict=True))
    assert twin.layers[0].linear1.weight.grad is None


def test_a_larger_input_is_warned_about_once():
    model = mlp(16, 6)
    auto_checkpoint(model, 0.6, torch.randn(8, 16))

    with pytest.warns(AutoCheckpointWarning, match=r"^input: 1024 bytes, planned for 512"):
        model(torch.randn(16, 16)).sum().backward()
    model(torch.randn(16, 16)).sum().backward()


def test_an_argument_that_a_layer_changes_is_refused_by_name():
    class Remember(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, log):
            log.append(1)
            return self.linear(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Remember() for _ in range(4)])

        def forward(self, x):
            log = []
            for layer in self.layers:
                x = layer(x, log=log)
            return x

    with pytest.raises(ModelRefused, match=r"^layers\.0: the layer changes its log \(list\)"):
        auto_checkpoint(Net(), 0.5, torch.randn(2, 4))


def test_compiled_models_are_refused_by_name():
    compiled = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    compiled.compile(backend="eager")
    with pytest.raises(ModelRefused, match=r"^Sequential: compiled by torch.compile"):
        auto_checkpoint(compiled, 0.5, torch.ones(1, 2))


def test_retain_graph_gives_the_same_gradients_twice():
    torch.manual_seed(0)
    model, x = transformer(16, 4), torch.randn(2, 6, 16)
    twin = copy.deepcopy(model)
    leanest(twin, x)

    def one(model):
        torch.manual_seed(1)
        model.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward(retain_graph=True)
        loss.backward()
        return [p.grad for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(one(twin), one(model), strict=True))


@pytest.mark.parametrize("mode", ["recompute", "drop"])
def test_double_backward_equals_plain(mode):
    torch.manual_seed(0)
    model, x = mlp(8, 5), torch.randn(4, 8)
    twin = copy.deepcopy(model)

    def penalty(model):
        given = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(given).pow(2).sum(), given, create_graph=True)
        model.zero_grad()
        gradient.pow(2).sum().backward()
        return [p.grad if p.grad is not None else torch.zeros(1) for p in model.parameters()]

    expected = penalty(model)
    schedule = nested(5) if mode == "recompute" else tuple(Keep(stage=i, mode="drop") for i in range(5))
    with runtime_of(twin) as runtime:
        runtime.use(schedule)
        got = penalty(twin)

    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_an_input_changed_in_place_before_backward_is_detected():
    model, x = mlp(8, 4), torch.randn(4, 8)
    with runtime_of(model) as runtime:
        runtime.use(whole(4))
        loss = model(x).sum()
        x.add_(1)

        with pytest.raises(ValueChanged, match=r"shape \(4, 8\) was changed in place"):
            loss.backward()


def test_a_parameter_changed_before_backward_is_detected_and_named():
    model, x = mlp(8, 4), torch.randn(4, 8)
    with runtime_of(model) as runtime:
        runtime.use(whole(4))
        loss = model(x).sum()
        with torch.no_grad():
            model[2][0].weight.add_(1)

        with pytest.raises(ValueChanged, match=r"changed in place"):
            loss.backward()


class Fragile(nn.Module):
    """Fails on demand, in the first or in the second run."""

    def __init__(self):
        super().__init__()
        self.linear, self.fail = nn.Linear(8, 8), ""

    def forward(self, x):
        if self.fail == ("again" if is_recomputing() else "first"):
            raise RuntimeError("asked to fail")
        return self.linear(x).tanh()


@pytest.mark.parametrize("when", ["first", "again"])
@pytest.mark.parametrize("prefetch", [False, True])
def test_an_error_leaves_no_state_behind(when, prefetch):
    torch.manual_seed(0)
    model, x = nn.Sequential(*[Fragile() for _ in range(4)]), torch.randn(4, 8)
    expected = step(copy.deepcopy(model), (x,))
    with runtime_of(model, prefetch=prefetch) as runtime:
        runtime.use(every_stage(4))
        model[1].fail = when
        with pytest.raises(RuntimeError, match="asked to fail"):
            step(model, (x,))
        assert local.walk is None
        assert local.recomputing == 0

        model[1].fail = ""
        assert_same_step(step(model, (x,)), expected)


def test_no_hooks_stay_behind_after_an_error():
    model, x = nn.Sequential(*[Fragile() for _ in range(3)]), torch.randn(4, 8)
    with runtime_of(model) as runtime:
        runtime.use(whole(3))
        model[2].fail = "first"
        with pytest.raises(RuntimeError, match="asked to fail"):
            model(x)

        other = torch.randn(3, requires_grad=True)
        assert other.exp().grad_fn._saved_result.shape == (3,)


@pytest.mark.slow
def test_nothing_leaks_over_a_thousand_steps():
    model, x = transformer(8, 4), torch.randn(1, 3, 8)
    with runtime_of(model) as runtime:
        runtime.use(nested(4))
        model(x).sum().backward()
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(1000):
            model(x).sum().backward()
        gc.collect()

        assert len(gc.get_objects()) - before < 200


def test_frames_die_with_the_graph_without_the_garbage_collector():
    model, x = transformer(8, 4), torch.randn(1, 3, 8)
    made = []
    with runtime_of(model) as runtime:
        runtime.use(nested(4))
        gc.disable()
        try:
            output = model(x)
            made = [weakref.ref(o) for o in gc.get_objects() if type(o) is Frame]
            assert made
            output.sum().backward()
            del output
            assert all(reference() is None for reference in made)
        finally:
            gc.enable()


def test_a_copy_or_pickle_of_a_patched_model_is_a_plain_model():
    model, x = mlp(8, 6), torch.randn(4, 8)
    auto_checkpoint(model, 0.6, x)

    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        expected = step(twin, (x,))
        assert twin.plan.statistics is None
        assert_same_step(step(model, (x,)), expected)
        with torch.no_grad():
            twin[0][0].weight.zero_()
        assert not torch.equal(model[0][0].weight, twin[0][0].weight)


def test_stages_called_out_of_order_or_skipped_still_train_rightly():
    class Skipping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Block(8, rate=0.0) for _ in range(6)])
            self.skip = ()

        def forward(self, x):
            for number, layer in enumerate(self.layers):
                if number not in self.skip:
                    x = layer(x)
            return x

    torch.manual_seed(0)
    model, x = Skipping(), torch.randn(1, 3, 8)
    twin = copy.deepcopy(model)
    leanest(twin, x)
    for skip in ((0,), (2, 3), (5,), (0, 1, 2, 3, 4)):
        model.skip = twin.skip = skip
        assert_same_step(step(twin, (x,)), step(model, (x,)))


def test_functional_calls_are_dropped_too():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, x):
            return x + self.b(F.gelu(self.a(F.layer_norm(x, (64,)))))

    class Method(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.a = nn.BatchNorm1d(64), nn.Linear(64, 64)

        def forward(self, x):
            return self.norm(self.a(x)).relu()

    torch.manual_seed(0)
    for kind in (Functional, Method):
        model, x = nn.Sequential(*[kind() for _ in range(4)]), torch.randn(64, 64)
        twin = copy.deepcopy(model)
        plain = measure_peak(model, lambda m=model, x=x: m(x).pow(2).mean().backward(), x)
        with runtime_of(model) as runtime:
            runtime.use(tuple(Keep(stage=i, mode="drop") for i in range(4)))
            dropped = measure_peak(model, lambda m=model, x=x: m(x).pow(2).mean().backward(), x)

            model.load_state_dict(twin.state_dict())
            got = step(model, (x,))

        assert dropped < 0.9 * plain
        assert_same_step(got, step(twin, (x,)))


def test_a_dropped_result_that_is_written_into_is_saved_instead():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            hidden = F.gelu(self.a(x))
            hidden.add_(1)
            return self.b(hidden)

    torch.manual_seed(0)
    model, x = nn.Sequential(*[Writes() for _ in range(3)]), torch.randn(4, 8)
    expected = step(copy.deepcopy(model), (x,))
    with runtime_of(model) as runtime:
        runtime.use(tuple(Keep(stage=i, mode="drop") for i in range(3)))
        assert_same_step(step(model, (x,)), expected)


def test_residual_blocks_are_single_stages():
    model, x = nn.Sequential(Residual(4), Residual(4), Residual(4)), torch.randn(1, 4, 4, 4)
    auto_checkpoint(model, 1.0, x)

    assert [stage.name for stage in model.plan.stages] == ["0", "1", "2"]
