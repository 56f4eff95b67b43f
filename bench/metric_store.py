"""Metric store: ten million points in a SQLite file, and how long one series of ten thousand takes to read."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from model_checkpoint.database import EnhancedDatabaseConnection, Experiment

METRICS, STEPS = 20, 10_000
CALLS = 1_000  # in one transaction, as the writer thread has them when much is logged
READS = 21


def fill(db: EnhancedDatabaseConnection, runs: range) -> float:
    """Store whole runs; return the seconds it took."""
    start = time.perf_counter()
    for run in runs:
        db.save_experiment(Experiment(id=f"run-{run}", name=f"run-{run}"))
        for first in range(0, STEPS, CALLS):
            db.write_calls(
                f"run-{run}",
                [
                    (1.7e9 + step, step, {f"train/metric_{i:02d}": 0.5 * i + step for i in range(METRICS)})
                    for step in range(first, first + CALLS)
                ],
            )
    return time.perf_counter() - start


def read_seconds(db: EnhancedDatabaseConnection, number: int, runs: int) -> float:
    """How long one series takes."""
    start = time.perf_counter()
    series = db.series(f"run-{number % runs}", f"train/metric_{number % METRICS:02d}")
    wall = time.perf_counter() - start
    if len(series) != STEPS or series.values[-1] != 0.5 * (number % METRICS) + STEPS - 1:
        raise SystemExit("the series that came back is not the one that was stored")
    return wall


def measure(folder: Path, points: int) -> dict[str, float]:
    """Fill a small file and a full one, and read series of both in turn."""
    home = Path(tempfile.mkdtemp(prefix="mckpt-bench-", dir=folder))
    runs = max(2, points // (METRICS * STEPS))
    small, full = (EnhancedDatabaseConnection(f"sqlite:///{home}/{name}.db") for name in ("small", "full"))
    try:
        with small, full:
            fill(small, range(1))
            seconds = fill(full, range(runs))
            walls = [(read_seconds(small, n, 1), read_seconds(full, n, runs)) for n in range(READS)]
        size = sum(path.stat().st_size for path in home.glob("full.db*"))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    stored = runs * METRICS * STEPS
    return {
        "points": stored,
        "rate": stored / seconds,
        "bytes": size / stored,
        "alone": median(one for one, _ in walls),
        "full": median(other for _, other in walls),
        "growth": median(other / one for one, other in walls),
    }
