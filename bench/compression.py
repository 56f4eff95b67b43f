"""Smaller and fewer bytes: what compression and incremental saves cost and save; ``python -m bench.compression``.

Compression: size of Gaussian weights by level, and bytes saved per CPU-second with everything a save does (hashing,
compressing, writing). Incremental: a model of which 95 % of the bytes are frozen, against a full save of that state.
Exit code 1 if a promise is not kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import ml_dtypes
import numpy as np
import torch

import model_checkpoint as mc
from bench.measuring.arguments import rounds_parser
from bench.measuring.promises import Promise, judge
from model_checkpoint import CompressionLevel
from model_checkpoint.engine.root.shared_files import stored_bytes

MB = 1_000_000


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether every promise was kept."""
    wish = rounds_parser("bench.compression", __doc__, rounds=3).parse_args(argv)
    torch.set_num_threads(1)
    folder: Path = wish.folder.resolve() / "compress"
    promises = [*compression(folder, wish), *incremental(folder, wish)]
    shutil.rmtree(folder, ignore_errors=True)
    return judge(promises)


# --- compression -----------------------------------------------------------------------------------------------------


def compression(folder: Path, wish: argparse.Namespace) -> list[Promise]:
    """Every level on every kind of bytes, in rotating order."""
    arrays = _arrays(int(256 * MB * wish.scale))
    rows = [(kind, level) for kind in arrays for level in CompressionLevel]
    figures: dict[tuple[str, CompressionLevel], list[tuple[float, float, float]]] = {row: [] for row in rows}
    for turn in range(wish.rounds):
        for row in rows[turn:] + rows[:turn]:
            figures[row].append(_compress_once(folder, arrays[row[0]], row[1]))
    print(f"Compression, {256 * wish.scale:.0f} MB of each\n  {'bytes':<12}{'level':<12}{'size':>8}", end="")
    print(f"{'save GB/CPU-s':>16}{'load GB/CPU-s':>16}")
    best = {}
    for (kind, level), runs in figures.items():
        ratio, save, load = (statistics.median(values) for values in zip(*runs, strict=True))
        best[kind, level] = (ratio, save)
        print(f"  {kind:<12}{level.value:<12}{ratio:8.4f}{save:16.2f}{load:16.2f}")
    fast = CompressionLevel.FAST
    growth = max(best["noise", level][0] / best["noise", CompressionLevel.NONE][0] for level in CompressionLevel)
    return [
        Promise("bf16 Gaussian weights, FAST: size", best["bf16", fast][0], 0.70),
        Promise("bf16 Gaussian weights, FAST: GB per CPU-second", best["bf16", fast][1], 0.25, least=True),
        Promise("fp32 Gaussian weights, FAST: size", best["fp32", fast][0], 0.86),
        Promise("noise, any level: size against uncompressed", growth, 1.001),
    ]


def _arrays(nbytes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    single = (rng.standard_normal(nbytes // 4, dtype=np.float32) * 0.02).astype(np.float32)
    half = (rng.standard_normal(nbytes // 2, dtype=np.float32) * 0.02).astype(ml_dtypes.bfloat16)
    return {"bf16": half, "fp32": single, "noise": np.frombuffer(rng.bytes(nbytes), np.uint8)}


def _compress_once(folder: Path, array: np.ndarray, level: CompressionLevel) -> tuple[float, float, float]:
    """Size ratio, and GB per CPU-second of a save and of a load."""
    shutil.rmtree(folder, ignore_errors=True)
    save, info = _cpu(lambda: mc.save(folder, {"w": array}, step=1, compression=level))
    load, back = _cpu(lambda: mc.load(folder)["w"])
    if back.tobytes() != array.tobytes():
        raise AssertionError(f"{level}: what was loaded is not what was saved")
    return info.size_bytes / array.nbytes, array.nbytes / save / 1e9, array.nbytes / load / 1e9


def _cpu(work: Callable[[], object]) -> tuple[float, object]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


# --- incremental -----------------------------------------------------------------------------------------------------


def incremental(folder: Path, wish: argparse.Namespace) -> list[Promise]:
    """Full and incremental saves of one model while a twentieth of it is trained."""
    runs = [_increments_once(folder, wish.scale, turn) for turn in range(wish.rounds)]
    print(f"\nIncremental saves, {runs[0]['bytes'] / MB:.0f} MB of which 95 % are frozen")
    print(f"  {'save':<28}{'written':>10}{'of full time':>14}")
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    for name in ("base", "first", "later"):
        print(f"  {name:<28}{middle[f'{name} bytes']:10.3f}{middle[f'{name} time']:14.3f}")
    return [
        Promise("first incremental save after the base: part of the bytes", middle["first bytes"], 0.12),
        Promise("later incremental saves: part of the bytes", middle["later bytes"], 0.06),
        Promise("first incremental save: part of a full save's time", middle["first time"], 0.3),
        Promise("later incremental saves: part of a full save's time", middle["later time"], 0.3),
    ]


def _increments_once(folder: Path, scale: float, turn: int) -> dict[str, float]:
    shutil.rmtree(folder, ignore_errors=True)
    model, optimizer = _model(scale)
    state = {"model": model, "optimizer": optimizer}
    chain, full = folder / "chain", folder / "full"
    figures: dict[str, float] = {}
    times = {"full": [_timed_full(full, state, 0)]} if turn % 2 else {"full": []}
    steps = {"base": [1], "first": [2], "later": [3, 4, 5]}
    for name, numbers in steps.items():
        seconds, written = [], []
        for step in numbers:
            _train(model, optimizer)
            before = stored_bytes(chain) if chain.exists() else 0
            started = time.perf_counter()
            info = mc.save(chain, state, step=step, incremental=True)
            seconds.append(time.perf_counter() - started)
            written.append((stored_bytes(chain) - before) / info.size_bytes)
            figures["bytes"] = float(info.size_bytes)
            times["full"].append(_timed_full(full, state, step))
        times[name] = seconds
        figures[f"{name} bytes"] = max(written)
    whole = statistics.median(times["full"])
    return figures | {f"{name} time": statistics.median(times[name]) / whole for name in steps}


def _timed_full(folder: Path, state: object, step: int) -> float:
    """Time of a save of everything, into an emptied folder."""
    shutil.rmtree(folder, ignore_errors=True)
    started = time.perf_counter()
    mc.save(folder, state, step=step)
    return time.perf_counter() - started


def _model(scale: float) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Frozen layers, and adapters whose weights and Adam moments take a twentieth of all bytes."""
    side = int(2048 * scale**0.5)
    frozen = [torch.nn.Linear(side, side, bias=False).requires_grad_(False) for _ in range(32)]
    count = int(32 * side * side * 0.05 / 0.95 / 3 / 32)
    adapters = [torch.nn.Linear(count, 1, bias=False) for _ in range(32)]
    layers = [layer for pair in zip(frozen, adapters, strict=True) for layer in pair]
    model = torch.nn.ModuleList(layers)
    return model, torch.optim.Adam([layer.weight for layer in adapters])


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


if __name__ == "__main__":
    raise SystemExit(main())
