"""Big catalog: 200 runs, 10,000 checkpoints and 2 million points in a SQLite file, made in seconds, the same each time.

Rows are put down in bulk, below the catalog's own methods, since those are not what is tried with it. Beside them lie a
few real checkpoints, saved by the manager, one of them damaged, and their run trains by a real memory plan, so that
every page has something to look into. Times are relative to ``now``: some runs live, one stalls, one is dead.

    python -m tests.ground.big_catalog FOLDER [runs checkpoints points]
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker, every, finish_saves
from model_checkpoint.database import EnhancedDatabaseConnection, LineageEdge
from tests.ground.stored.stored_files import flip

METRICS = ("val_loss", "train_loss", "accuracy", "lr", "grad_norm")
PROJECTS = ("gpt2-124m", "vit-b16", "llama-1b-lora", "unet-ddpm")
NAMES = ("baseline", "warmup", "muon", "rope", "swiglu", "wd-0.2", "cosine", "anneal", "no-dropout", "ema")
TAGS = ("baseline", "paper", "ablation", "sweep")
HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class BuiltCatalog:
    """Where everything is, and what to look at."""

    url: str
    folder: Path
    root: Path  # of the real checkpoints
    alive: str
    stalled: str
    dead: str
    real: str  # the run whose checkpoints are really there
    real_checkpoints: tuple[str, ...]  # by step; the second one is damaged, the third has a parity file
    runs: int
    checkpoints: int
    points: int


def build_catalog(
    folder: Path | str, *, runs: int = 200, checkpoints: int = 10_000, points: int = 2_000_000, seed: int = 7
) -> BuiltCatalog:
    """Make the catalog and what lies beside it in ``folder``."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path, now = folder / "experiments.db", time.time()
    url = f"sqlite:///{path}"
    chance = np.random.default_rng(seed)
    with EnhancedDatabaseConnection(url) as connection:
        real, ids = _real_run(connection, url, folder / "real")
        keys = connection._keys_of(METRICS)
        numbers = {name: keys[name] for name in METRICS}
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA synchronous=OFF")
        _fill(database, chance, numbers, runs=runs, checkpoints=checkpoints, points=points, now=now)
    database.close()
    with EnhancedDatabaseConnection(url) as connection:
        for child in range(4, runs, 9):
            step = 100 * (child % 5 + 1)
            connection.add_edge(
                LineageEdge(
                    parent=f"ckpt-{child - 4:04d}-{child % 5:04d}", child=f"run{child:04d}", kind="resumed", step=step
                )
            )
    return BuiltCatalog(
        url,
        folder,
        folder / "real",
        "run0000",
        "run0001",
        "run0002",
        real,
        ids,
        runs + 1,
        checkpoints + len(ids),
        points,
    )


def _blocks():
    from torch import nn

    blocks = [nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.LayerNorm(64)) for _ in range(10)]
    return nn.Sequential(*blocks)


@cache
def _planned():
    """A real plan, measured once."""
    import torch

    from model_checkpoint.recompute import auto_checkpoint

    return auto_checkpoint(_blocks(), 0.45, torch.randn(256, 64)).plan


def log_memory_plan(run: ExperimentTracker) -> None:
    """What a training run does that has a budget: it puts a plan in force, and its run knows of it."""
    from model_checkpoint.recompute import auto_checkpoint

    auto_checkpoint(_blocks(), plan=_planned(), tracker=run)


def _real_run(connection: EnhancedDatabaseConnection, url: str, root: Path) -> tuple[str, tuple[str, ...]]:
    """A run with four real checkpoints; a bit of the second is flipped."""
    chance = np.random.default_rng(1)
    with ExperimentTracker(
        "real", "digits", tags=["real"], config={"lr": 0.1, "total_steps": 40}, database_url=url
    ) as run:
        log_memory_plan(run)
        manager = EnhancedCheckpointManager(run, str(root), keep=[every(10)], parity="xor")
        weights = {f"layer{n}.weight": chance.normal(size=(32, 16)).astype(np.float32) for n in range(4)}
        ids = []
        for step in range(10, 50, 10):
            weights = {
                name: w + chance.normal(scale=0.01, size=w.shape).astype(np.float32) for name, w in weights.items()
            }
            run.log_metrics({"val_loss": 10.0 / step, "loss_scale": 65536.0 / step}, step=step)
            groups = [{"lr": 0.1, "initial_lr": 0.2}]
            optimizer = {"state": {n: w * 0.1 for n, w in weights.items()}, "param_groups": groups}
            ids.append(manager.save_checkpoint(weights, optimizer, step=step, val_loss=10.0 / step))
        manager.close()
    finish_saves()  # also of the parity files, before anything is damaged
    row = connection.get_checkpoint(ids[1])
    data = next(Path(row.file_path).glob("*.safetensors"))
    flip(data)
    return run.experiment_id, tuple(ids)


def _fill(database, chance, keys, *, runs: int, checkpoints: int, points: int, now: float) -> None:
    each, length = checkpoints // runs, max(2, points // runs // len(METRICS))
    experiments, beats, rows, scores, audits, summaries = [], [], [], [], [], []
    for number in range(runs):
        run = 1000 + number
        status, start, seen, moved, end = _life(number, now)
        config = {
            "lr": float(round(3e-4 * (1 + number % 7), 6)), "batch_size": 64 * (1 + number % 4), "seed": number,
            "total_steps": length * 12 // 10, "optimizer": {"name": "adamw" if number % 3 else "muon"},
        }  # fmt: skip
        tags = [TAGS[number % len(TAGS)]] if number % 3 == 0 else []
        name = f"{NAMES[number % len(NAMES)]}-{number}"
        experiments.append(
            (run, f"run{number:04d}", name, PROJECTS[number % len(PROJECTS)], status, start, end, length - 1, "",
             json.dumps(tags), json.dumps(config))
        )  # fmt: skip
        if seen is not None:
            beats.append((run, seen, moved, length - 1))
        values = _curves(chance, length, number)
        summaries += _put_points(database, run, keys, values, start, (moved or end or now) - start)
        for place in range(each):
            step = (place + 1) * length // each
            at = start + (place + 1) / each * ((moved or end or now) - start)
            rows.append(_checkpoint(number, place, step, at, values["val_loss"][min(step, length - 1)], each))
            scores.append((rows[-1][0], keys["val_loss"], f"run{number:04d}", 0, rows[-1][13], step, at))
            audits.append((f"audit-{number}-{place}", at, f"user-{number % 3}@gpu-0{number % 5}:77", "save", "ok",
                           rows[-1][0], _audit_details(at)))  # fmt: skip
    _insert(database, "experiments", 11, experiments)
    _insert(database, "heartbeats", 4, beats)
    _insert(database, "checkpoints", 31, rows)
    _insert(database, "checkpoint_metrics", 7, scores)
    _insert(database, "metric_summaries", 14, summaries)
    database.executemany(
        "INSERT INTO audit_log (id, at, actor, action, outcome, subject, details) VALUES (?,?,?,?,?,?,?)", audits
    )


def _insert(database, table: str, width: int, rows) -> None:
    database.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * width)})", rows)


def _life(number: int, now: float) -> tuple[str, float, float | None, float | None, float | None]:
    """Status, start, last sign of life, last step, end."""
    start = now - (number + 2) * 3 * HOUR
    if number == 1:
        return "running", start, now + 3600.0, now - 1500.0, None  # seen till an hour from now, but it does not move
    if number == 2:
        return "running", start, now - 3 * HOUR, now - 3 * HOUR, None
    if number % 25 == 0:
        return "running", start, now + 3600.0, now + 3600.0, None
    end = start + 2 * HOUR
    return ("failed" if number % 17 == 3 else "stopped" if number % 23 == 5 else "completed"), start, end, end, end


def _curves(chance, length: int, number: int) -> dict[str, np.ndarray]:
    x = np.arange(length) / length
    noise = chance.normal(size=(len(METRICS), length))
    fall = 2.2 + number % 11 * 0.05 + 3.0 * np.exp(-5 * x)
    return {
        "val_loss": fall + 0.02 * noise[0],
        "train_loss": fall - 0.1 + 0.05 * noise[1],
        "accuracy": 0.9 - 0.6 * np.exp(-4 * x) + 0.005 * noise[2],
        "lr": 3e-4 * (1 - x) + 1e-6,
        "grad_norm": np.abs(1 + 0.3 * noise[4]),
    }


def _put_points(database, run: int, keys, values, start: float, seconds: float):
    length = len(values["val_loss"])
    steps = range(length)
    times = (start + seconds * (np.arange(length) + 1) / length).tolist()
    for name in sorted(METRICS, key=keys.__getitem__):
        column = values[name].tolist()
        key = keys[name]
        rows = zip([run] * length, [key] * length, steps, times, [0] * length, column, strict=True)
        database.executemany("INSERT INTO experiment_metrics VALUES (?,?,?,?,?,?)", rows)
        low, high = int(np.argmin(values[name])), int(np.argmax(values[name]))
        yield (run, key, length, 0, length - 1, times[-1], 0, column[-1], 0, column[low], low, 0, column[high], high)


def _checkpoint(number: int, place: int, step: int, at: float, loss: float, each: int) -> tuple:
    name, best = f"step-{step:08d}", place == each - 2
    size = (200 + number % 50) * 10**6
    health = "damaged" if (number, place) in ((5, 3), (30, 1)) else "healthy" if place % 4 else "unknown"
    root = f"/nowhere/runs/run{number:04d}"
    return (
        f"ckpt-{number:04d}-{place:04d}", f"run{number:04d}", place, step, "periodic", f"{root}/checkpoints/{name}",
        size,
        f"{number:032x}{place:032x}", "Net", None, None, 0, float(loss), "table 3" * int(best and number % 10 == 0),
        0, int(best), 0, "{}", "{}", at, name, root, "native", '["model","optimizer","rng"]',
        '["paper"]' if best and number % 10 == 0 else "[]", int(best and number % 10 == 0), size - size // 8, health,
        at + 60.0 if health != "unknown" else 0.0, "committed", None,
    )  # fmt: skip


def _audit_details(at: float) -> str:
    segments = [
        ("stall", 0.0, 0.212), ("hooks", 0.0, 0.002), ("staging", 0.002, 0.21), ("writing", 0.212, 0.93),
        ("hooks", 1.142, 0.218), ("checking", 1.36, 0.03),
    ]  # fmt: skip
    hooks = [
        {"hook": "best-model", "event": "AFTER_CHECKPOINT_SAVE", "priority": "HIGH", "began_at": at + 1.15,
         "seconds": 0.004, "outcome": "done"},
        {"hook": "webhook", "event": "AFTER_CHECKPOINT_SAVE", "priority": "LOW", "began_at": at + 1.16,
         "seconds": 0.2, "outcome": "done"},
    ]  # fmt: skip
    told = [{"kind": kind, "from": start, "dur": dur} for kind, start, dur in segments]
    return json.dumps({"timing": {"began_at": at, "segments": told, "hooks": hooks}})


if __name__ == "__main__":
    counts = [int(word) for word in sys.argv[2:5]] or [200, 10_000, 2_000_000]
    began = time.perf_counter()
    made = build_catalog(sys.argv[1], runs=counts[0], checkpoints=counts[1], points=counts[2])
    size = os.path.getsize(made.folder / "experiments.db")
    print(f"{made.url}: {counts} in {time.perf_counter() - began:.1f} s, {size / 1e6:.0f} MB")
