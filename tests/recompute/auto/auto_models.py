"""Small models of every family the recomputation tests train."""

import threading
import time

import torch
import torch.nn.functional as F
from torch import nn

from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.auto.planning.schedule import Keep, Region
from model_checkpoint.recompute.auto.running.runtime import Runtime
from model_checkpoint.recompute.auto.running.stage_call import StageCall, StageFacts
from model_checkpoint.recompute.auto.saving.offload import Offloader


class Block(nn.Module):
    """Pre-norm transformer block with dropout; functional calls included on purpose."""

    def __init__(self, width=16, heads=2, rate=0.1):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(rate)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, time, width)
        x = x + self.drop(self.out(mixed))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class Residual(nn.Module):
    """Residual block with batch norm."""

    def __init__(self, channels):
        super().__init__()
        self.a, self.b = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)
        self.na, self.nb = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.nb(self.b(self.na(self.a(x)).relu())))


class Cross(nn.Module):
    """Decoder layer that also reads the encoder's output."""

    def __init__(self, width=16):
        super().__init__()
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True, dropout=0.1)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, memory, scale=1.0):
        mixed, _ = self.attend(self.norm(x), memory, memory, need_weights=False)
        return x + scale * mixed


class EncoderDecoder(nn.Module):
    """Two stacks; every decoder layer takes the encoder's result as a second argument."""

    def __init__(self, width=16, layers=3):
        super().__init__()
        self.encoder = nn.ModuleList([Block(width) for _ in range(layers)])
        self.decoder = nn.ModuleList([Cross(width) for _ in range(layers)])
        self.head = nn.Linear(width, 7)

    def forward(self, source, target):
        for layer in self.encoder:
            source = layer(source)
        for layer in self.decoder:
            target = layer(target, memory=source, scale=0.5)
        return self.head(target)


def mlp(width=16, layers=6):
    return nn.Sequential(
        *[nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(layers)]
    )


def cnn(channels=4, layers=6):
    first = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
    rest = [
        nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        for _ in range(layers - 1)
    ]
    return nn.Sequential(first, *rest)


def transformer(width=16, layers=4, rate=0.1):
    return nn.Sequential(*[Block(width, rate=rate) for _ in range(layers)])


def residual(channels=4, layers=4):
    return nn.Sequential(*[Residual(channels) for _ in range(layers)])


FAMILIES = {
    "mlp": (mlp, lambda: (torch.randn(8, 16),)),
    "cnn": (cnn, lambda: (torch.randn(2, 3, 8, 8),)),
    "transformer": (transformer, lambda: (torch.randn(2, 6, 16),)),
    "residual": (residual, lambda: (torch.randn(2, 4, 6, 6),)),
    "encoder-decoder": (EncoderDecoder, lambda: (torch.randn(2, 5, 16), torch.randn(2, 4, 16))),
}


def seeded(family, seed=0):
    """A model of a family and what it is called with, the same for the same seed."""
    torch.manual_seed(seed)
    build, make_inputs = family
    return build(), make_inputs()


def stages_by_hand(model):
    """The layers of a family's model, in the order they are called."""
    modules = [*model.encoder, *model.decoder, model.head] if isinstance(model, EncoderDecoder) else list(model)
    names = {id(module): name for name, module in model.named_modules()}
    stages = []
    for index, module in enumerate(modules):
        buffers = tuple(name for name, _ in module.named_buffers())
        stages.append(StageCall(index, StageFacts(name=names[id(module)], buffers=buffers), module))
    return stages


def runtime_of(model, **options):
    return Runtime(model, stages_by_hand(model), **options)


def step(model, inputs, seed=0):
    """One training step from fixed generators: loss, gradients, buffers and the generator afterwards."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = None
    loss = model(*inputs).pow(2).mean()
    loss.backward()
    gradients = [p.grad.clone() if p.grad is not None else None for p in model.parameters()]
    return loss.detach(), gradients, [b.clone() for b in model.buffers()], torch.get_rng_state()


def assert_same_step(got, expected):
    assert torch.equal(got[0], expected[0])
    for a, b in zip(got[1], expected[1], strict=True):
        assert (a is None and b is None) or torch.equal(a, b)
    for a, b in zip(got[2], expected[2], strict=True):
        assert torch.equal(a, b)
    assert torch.equal(got[3], expected[3])


def random_schedule(rng, first, last, modes=("full",), depth=0):
    """Any keep/recompute tree over first..last."""
    nodes = []
    while first <= last:
        if first == last or rng.random() < 0.4 or depth > 3:
            nodes.append(Keep(stage=first, mode=rng.choice(modes)))
            first += 1
            continue
        stop = rng.randint(first, last if depth == 0 else last - 1)
        body = random_schedule(rng, first, stop, modes, depth + 1)
        nodes.append(Region(start=first, stop=stop, body=tuple(body)))
        first = stop + 1
    return tuple(nodes)


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


def nested(count):
    inner = Region(start=1, stop=count - 2, body=tuple(Keep(stage=i) for i in range(1, count - 1)))
    return (Region(start=0, stop=count - 1, body=(Keep(stage=0), inner, Keep(stage=count - 1))),)


def runtime_of_plan(model, **options):
    """A runtime with the facts found by planning, to try any schedule."""
    plan = model.plan
    plan.remove()
    names = StageFacts.__dataclass_fields__
    facts = [StageFacts(**{n: getattr(line, n) for n in names}) for line in plan.stages]
    modules = [stage.module for stage in plan.profile.found.stages]
    stages = [StageCall(i, f, m) for i, (f, m) in enumerate(zip(facts, modules, strict=True))]
    return Runtime(model, stages, **options)


def kept(count, mode):
    return tuple(Keep(stage=i, mode=mode) for i in range(count))


def spilled_regions(count):
    """Regions that put their tensors on disk when they run again."""
    return tuple(Region(start=i, stop=i, body=(Keep(stage=i, mode="disk"),)) for i in range(count))


EVERY_MODE = {
    "recompute": nested,
    "prefetch": every_stage,
    "drop": lambda count: kept(count, "drop"),
    "drop+masks": lambda count: kept(count, "drop+masks"),
    "disk": lambda count: kept(count, "disk"),
    "host": lambda count: kept(count, "host"),
    "disk in regions, prefetched": spilled_regions,
}


def runtime_in(model, mode, folder):
    """A runtime with every stage in one mode; spill files go to ``folder``."""
    runtime = runtime_of(model, prefetch="prefetch" in mode, offloader=Offloader(folder))
    runtime.use(EVERY_MODE[mode](len(runtime.stages)))
    return runtime


def wait_until(fact, seconds=60):
    """Whether a fact comes true before a generous limit."""
    end = time.monotonic() + seconds
    while not fact() and time.monotonic() < end:
        time.sleep(0.001)
    return fact()


class Held:
    """Keeps the worker busy until it is let go, so that nothing is written in the background."""

    def __init__(self, runtime, model, x):
        self._runtime, self._gate, self._begun = runtime, threading.Event(), threading.Event()
        model(x)  # the worker starts with the first group
        self._task = runtime.resources.offloader.submit(self._wait)
        assert self._begun.wait(60)

    def _wait(self):
        self._begun.set()
        self._gate.wait(60)

    def let_go(self):
        self._gate.set()
        self._task.result(60)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.let_go()


def spill_files(folder):
    return list(folder.rglob("*.spill"))


def sizes(folder):
    return sorted(file.stat().st_size for file in spill_files(folder))


def autocast_gradients(model, x):
    """The gradients of one seeded step whose forward runs under autocast and whose backward does not."""
    torch.manual_seed(1)
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).float().pow(2).mean()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]
