"""Cost of a mixed-precision step as a ratio to a fused FP32 AdamW step over the same parameters.

One thread, CPU time, interleaved rounds, the smallest of them. Run with ``python -m bench.precision``.
"""

from __future__ import annotations

import gc
import math
import os
import sys
import time

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from bench.measuring.promises import Promise, judge
from model_checkpoint.precision import MixedPrecisionOptimizer, MixedPrecisionOptions, Precision
from model_checkpoint.precision.gradients.finite import judge_gradients, name_offenders

WIDTH = 704
LIMITS = {"fused": 2.0, "other": 1.8, "naive": 4.0, "provenance": 0.20}
DTYPES = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
BASES = {
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=1e-6, fused=True),
    "SGD fused": lambda p: torch.optim.SGD(p, lr=1e-6, fused=True),
    "momentum fused": lambda p: torch.optim.SGD(p, lr=1e-6, momentum=0.9, fused=True),
    "Adagrad fused": lambda p: torch.optim.Adagrad(p, lr=1e-6, fused=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, lr=1e-6, foreach=True),
    "AdamW loop": lambda p: torch.optim.AdamW(p, lr=1e-6, foreach=False),
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-6),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-6),
}


def list_shapes() -> list[tuple[int, ...]]:
    """A small transformer: 48.1M parameters in 74 tensors."""
    d = WIDTH
    block = [(3 * d, d), (3 * d,), (d, d), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,), (d,), (d,), (d,), (d,)]
    return [(16000, d), *(block * 6), (1500, d)]


def make_weights() -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape) * 0.02) for shape in list_shapes()]


def plain_step(base: str):
    """The base alone in FP32: what its users pay today."""
    weights = make_weights()
    optimizer = BASES[base](weights)
    for weight in weights:
        weight.grad = torch.randn(weight.shape) * 1e-3
    return optimizer.step


def mixed_step(base: str, precision: Precision, *, half_gradients: bool = False):
    """Check, unscale, clip, step and cast. Every step divides: FP16 by its scale, BF16 to clip."""
    weights = make_weights()
    options = MixedPrecisionOptions.for_fp16(
        precision=precision, growth_interval=10**9, accumulate_in_fp32=not half_gradients, max_grad_norm=1.0
    )
    optimizer = MixedPrecisionOptimizer(BASES[base](weights), options)
    kept = [torch.randn(weight.shape) * 1e-3 for weight in weights]
    if half_gradients:
        kept = [gradient.to(DTYPES[precision]) for gradient in kept]
    for weight, gradient in zip(weights, kept, strict=True):
        weight.grad = gradient
    loss = torch.ones(())

    def step() -> None:
        optimizer.scale_loss(loss)
        assert optimizer.step().applied

    return step


def naive_step(precision: Precision):
    """What people write by hand: per-tensor isfinite, float() / scale, clip, for-loop AdamW, per-tensor copy."""
    masters, scale = make_weights(), 1024.0
    halves = [master.detach().to(DTYPES[precision]) for master in masters]
    gradients = [(torch.randn(master.shape) * 1e-3).to(DTYPES[precision]) for master in masters]
    optimizer = torch.optim.AdamW(masters, lr=1e-6, foreach=False)

    def step() -> None:
        for gradient in gradients:
            if not torch.isfinite(gradient).all().item():
                return
        for master, gradient in zip(masters, gradients, strict=True):
            master.grad = gradient.float() / scale
        torch.nn.utils.clip_grad_norm_(masters, 1.0, foreach=False)
        optimizer.step()
        with torch.no_grad():
            for half, master in zip(halves, masters, strict=True):
                half.copy_(master)

    return step


def check_only(bad: int, value: float):
    """The check with its names and counts, for ``bad`` of the 74 gradients not finite."""
    gradients = [torch.randn(shape) * 1e-3 for shape in list_shapes()]
    order = sorted(range(len(gradients)), key=lambda place: -gradients[place].numel())
    for place in order[:bad]:
        gradients[place].view(-1)[-1] = value
    names = [f"layer.{place}" for place in range(len(gradients))]

    def check() -> None:
        assert len(name_offenders(names, gradients, judge_gradients(gradients))) == bad

    return check


def measure(steps: dict, rounds: int) -> dict[str, float]:
    """Smallest CPU milliseconds per variant; the order is rotated each round."""
    best = dict.fromkeys(steps, math.inf)
    names = list(steps)
    for step in steps.values():
        step()
        step()
    gc.disable()
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            started = time.process_time()
            steps[name]()
            best[name] = min(best[name], (time.process_time() - started) * 1e3)
    gc.enable()
    return best


def show(title: str, rows: list[tuple[str, float, float]]) -> None:
    print(f"\n{title}")
    for name, milliseconds, ratio in rows:
        print(f"  {name:44s} {milliseconds:8.1f} ms  {ratio:6.2f}")


def compare_steps(rounds: int) -> list[Promise]:
    promises = []
    for precision in DTYPES:
        steps = {"FP32": plain_step("AdamW fused"), "mixed": mixed_step("AdamW fused", precision)}
        steps["mixed, 16-bit gradients"] = mixed_step("AdamW fused", precision, half_gradients=True)
        steps["naive"] = naive_step(precision)
        best = measure(steps, rounds)
        unit = best["FP32"]
        title = f"{precision.name}: one step, x fused FP32 AdamW"
        show(title, [(name, spent, spent / unit) for name, spent in best.items()])
        promises.append(Promise(f"{precision.name}: mixed / fused FP32 AdamW", best["mixed"] / unit, LIMITS["fused"]))
        slower = Promise(
            f"{precision.name}: naive loop / mixed", best["naive"] / best["mixed"], LIMITS["naive"], least=True
        )
        promises.append(slower)
        del steps
        gc.collect()
    return promises


def compare_bases(rounds: int) -> list[Promise]:
    rows, promises = [], []
    for base in list(BASES)[1:]:
        steps = {"unit": plain_step("AdamW fused"), "own": plain_step(base), "mixed": mixed_step(base, Precision.BF16)}
        best = measure(steps, rounds)
        extra = (best["mixed"] - best["own"]) / best["unit"]
        rows.append((f"{base} (own step {best['own']:.1f} ms)", best["mixed"], extra))
        promises.append(Promise(f"BF16: {base}, beyond its own FP32 step", extra, LIMITS["other"]))
        del steps
        gc.collect()
    show("BF16: cost beyond the base's own FP32 step, x fused FP32 AdamW", rows)
    return promises


def compare_provenance(rounds: int) -> list[Promise]:
    cases = {"no bad gradient": check_only(0, 0.0)}
    for bad in (1, 8, 74):
        cases[f"{bad} with NaN"] = check_only(bad, math.nan)
        cases[f"{bad} with Inf"] = check_only(bad, math.inf)
    best = measure(cases, rounds * 2)
    unit = best["no bad gradient"]
    show("provenance: cost beyond the check", [(name, spent, spent / unit - 1) for name, spent in best.items()])
    del best["no bad gradient"]
    return [Promise(f"provenance: {name}", spent / unit - 1, LIMITS["provenance"]) for name, spent in best.items()]


def main() -> int:
    torch.set_num_threads(1)
    rounds = int(os.environ.get("BENCH_ROUNDS", "9"))
    count = sum(torch.Size(shape).numel() for shape in list_shapes())
    print(f"{count / 1e6:.1f}M parameters, {len(list_shapes())} tensors, 1 thread, min of {rounds} rounds, CPU time")
    return judge([*compare_steps(rounds), *compare_bases(max(rounds // 2, 3)), *compare_provenance(rounds)])


if __name__ == "__main__":
    sys.exit(main())
