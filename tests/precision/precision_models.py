"""Small models and a deterministic training loop the tests share."""

import torch

from model_checkpoint.precision import MixedPrecisionOptimizer, MixedPrecisionOptions


class Net(torch.nn.Module):
    """Embedding, linear layers, a norm, a tied head: every special case at once."""

    def __init__(self, width=16, words=12):
        super().__init__()
        self.embed = torch.nn.Embedding(words, width)
        self.mix = torch.nn.Linear(width, 2 * width)
        self.norm = torch.nn.LayerNorm(2 * width)
        self.out = torch.nn.Linear(2 * width, words)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, words):
        return self.out(torch.nn.functional.gelu(self.norm(self.mix(self.embed(words)))))


def build(seed=0, model=Net, **kwargs):
    torch.manual_seed(seed)
    return model(**kwargs)


def batch(step):
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randint(0, 12, (32,), generator=generator)


def loss_of(model, step):
    words = batch(step)
    return torch.nn.functional.cross_entropy(model(words), (words * 5 + 3) % 12)


def train(model, optimizer, steps, *, spoil=(), after=None):
    """Run ``steps``; the loss of those in ``spoil`` is blown up so that FP16 gradients overflow."""
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, step)
        optimizer.backward(loss * 1e7 if step in spoil else loss)
        optimizer.step()
        losses.append(loss.item())
        if after is not None:
            after(step)
    return losses


def options(precision="fp16", **changes):
    preset = MixedPrecisionOptions.for_fp16 if precision == "fp16" else MixedPrecisionOptions.for_bf16
    base = {"initial_loss_scale": 1024.0, "growth_interval": 7} if precision == "fp16" else {}
    return preset(**{**base, **changes})


def wrap(model, make_base=None, chosen=None, **kwargs):
    make_base = make_base or (lambda parameters: torch.optim.AdamW(parameters, lr=1e-2))
    return MixedPrecisionOptimizer(make_base(model.parameters()), chosen or options(), model=model, **kwargs)


def bits(optimizer):
    """Everything that must be equal, as comparable values."""
    table, session = optimizer.parameter_table, optimizer.session
    state = {
        slot.name: {
            key: value.clone() if isinstance(value, torch.Tensor) else value
            for key, value in optimizer.base_optimizer.state.get(slot.master, {}).items()
        }
        for slot in table.slots
    }
    return {
        "masters": {slot.name: slot.master.detach().clone() for slot in table.slots},
        "training": {slot.name: slot.param.detach().clone() for slot in table.slots},
        "state": state,
        "scaler": session.scaler.state,
        "counters": session.counters.to_tree(),
        "fallback": session.fallback,
        "timeline": session.timeline.to_tree(),
    }


def assert_same(first, second, where="state"):
    """Bit for bit, with the path of the first difference."""
    if isinstance(first, torch.Tensor):
        assert first.dtype == second.dtype, where
        assert torch.equal(first, second), where
    elif isinstance(first, dict):
        assert set(first) == set(second), where
        for key, value in first.items():
            assert_same(value, second[key], f"{where}.{key}")
    else:
        assert first == second, where
