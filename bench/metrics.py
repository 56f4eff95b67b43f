"""Metrics: log 20 metrics a step, beside MLflow and Trackio, each in a process of its own; store ten million points.

The peers live in an environment of their own (``.bench-peers``), made on first use; they run with telemetry off and,
where the system lets us, with no network but the loopback.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench import metric_store
from bench.measuring.promises import Promise, judge

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".bench-peers"
PACKAGES = {"trackio": "trackio>=0.43", "mlflow": "mlflow>=3.17"}
CALLS = {"ours": 10_000, "trackio": 10_000, "mlflow": 100}  # MLflow needs ten milliseconds for each
METRICS = 20
TIMES_MLFLOW, TIMES_TRACKIO, CALL_OF_TRACKIO = 50.0, 1.0, 0.5
POINTS, READ_MILLISECONDS, READ_GROWTH = 10_000_000, 100.0, 2.0
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
}
LOOPBACK = ["unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a target is missed, or a peer could not be measured."""
    parser = argparse.ArgumentParser(prog="bench.metrics", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the calls, for quick runs")
    args = parser.parse_args(argv)
    pythons = {"ours": sys.executable, **peers()}
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    names = list(pythons)
    for number in range(args.rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            figures[name].append(measure(name, pythons[name], max(20, int(CALLS[name] * args.scale))))
    return judge([*report(figures), *report_store(metric_store.measure(ROOT, int(POINTS * args.scale)))])


def peers() -> dict[str, str]:
    """The interpreter of each peer that is installed, or can be."""
    python = PEERS / "bin" / "python"
    found = {}
    for name, package in PACKAGES.items():
        try:
            if not python.exists():
                subprocess.run([sys.executable, "-m", "venv", PEERS], check=True, capture_output=True)
            probe = [python, "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is None)"]
            if subprocess.run(probe, check=False).returncode:
                subprocess.run([python, "-m", "pip", "install", "-q", package], check=True, capture_output=True)
            found[name] = str(python)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", b"") or str(error).encode()
            print(f"SKIPPED {name}: cannot be installed: {said.decode().strip().splitlines()[-1]}", flush=True)
    return found


def measure(name: str, python: str, calls: int) -> dict[str, float]:
    """One run of one library in an empty folder."""
    folder = Path(tempfile.mkdtemp(prefix="mckpt-bench-", dir=ROOT))
    command = [python, str(ROOT / "bench" / "metric_contenders.py"), name, str(folder), str(calls), str(METRICS)]
    environment = {**os.environ, **QUIET, "HOME": str(folder)}
    try:
        done = subprocess.run([*fence(), *command], capture_output=True, text=True, env=environment, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FIGURES ")]
    if done.returncode or not lines:
        raise SystemExit(f"{name} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return json.loads(lines[-1].removeprefix("FIGURES "))


def fence() -> list[str]:
    """How to start a program that reaches nothing but this machine; nothing where that is not allowed."""
    allowed = shutil.which("unshare") and shutil.which("ip")
    if allowed and subprocess.run([*LOOPBACK, "true"], check=False, capture_output=True).returncode == 0:
        return LOOPBACK
    return []


def ratios(figures: dict[str, list[dict[str, float]]], other: str, key: str) -> float:
    """Ours over the other's: the median of the ratios within each round; no number if the other was not measured."""
    if other not in figures:
        return math.nan
    pairs = zip(figures["ours"], figures[other], strict=True)
    return median(mine[key] / theirs[key] for mine, theirs in pairs)


def report(figures: dict[str, list[dict[str, float]]]) -> list[Promise]:
    """Print every library; what is promised beside the others."""
    print(f"{METRICS} metrics a call, SQLite; median of the rounds")
    for name, rounds in figures.items():
        call, late, rate = (median(one[key] for one in rounds) for key in ("call", "p99", "rate"))
        print(f"{name:8} call {call * 1e6:9.1f} us (p99 {late * 1e6:9.1f})  {rate:10.0f} points/s until all are stored")
    return [
        Promise("points per second / MLflow's", ratios(figures, "mlflow", "rate"), TIMES_MLFLOW, least=True),
        Promise("points per second / Trackio's", ratios(figures, "trackio", "rate"), TIMES_TRACKIO, least=True),
        Promise("cost of a call / Trackio's", ratios(figures, "trackio", "call"), CALL_OF_TRACKIO),
    ]


def report_store(figures: dict[str, float]) -> list[Promise]:
    """Print what ten million points cost; a series is read in milliseconds, whatever lies beside it."""
    alone, full = figures["alone"] * 1e3, figures["full"] * 1e3
    print(
        f"{figures['points']:.0f} points stored at {figures['rate']:.0f} points/s, {figures['bytes']:.0f} bytes each; "
        f"a series of {metric_store.STEPS} read in {full:.1f} ms, in {alone:.1f} ms with {metric_store.METRICS} series"
    )
    return [
        Promise("ms to read the series", full, READ_MILLISECONDS),
        Promise("times as long as with few", figures["growth"], READ_GROWTH),
    ]


if __name__ == "__main__":
    sys.exit(main())
