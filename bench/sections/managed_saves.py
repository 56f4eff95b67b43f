"""Managed saves: what a save through the manager costs beside a plain one, and a reindex of many."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from bench.measuring.results import Section, Verdict
from bench.measuring.rounds import Say

_SAVES, _REINDEXED = 60, 2_000


def run(folder: Path, *, rounds: int, scale: float, say: Say) -> Section:
    """Measure; everything is a ratio within this process but the rate of a reindex."""
    folder.mkdir(parents=True, exist_ok=True)
    say("saves")
    saves = _saves(folder / "saves", max(20, round(rounds * _SAVES * scale)))
    say("reindex")
    rate = _reindex(folder / "reindex", max(200, round(_REINDEXED * scale)))
    medians = {name: median(times) for name, times in saves.items()}
    plain, manager, kept, torch_file = (medians[name] for name in ("mc.save", "manager", "manager, keep 10", "torch"))
    grid = [
        ("a state of 400 bytes", "median, ms", "of mc.save"),
        *((name, f"{value * 1e3:.2f}", f"{value / plain:.2f}") for name, value in medians.items()),
    ]
    return Section(
        title="Saves through the manager",
        intro="Saves through `EnhancedCheckpointManager` on a SQLite file, with rows, flags, edges and audit entries.",
        grid=grid,
        facts={"reindex": f"{rate:,.0f} checkpoints per second"},
        notes=[f"`manager, keep 10` removes an old checkpoint with every save: {kept / plain:.2f} of mc.save."],
        verdicts=[
            Verdict(claim="400 bytes: manager / mc.save", value=manager / plain, limit=1.5),
            Verdict(claim="400 bytes: manager / torch.save + fsync", value=manager / torch_file, limit=10.0),
            Verdict(claim="reindex", value=rate, limit=1_000, at_most=False, unit="/s"),
        ],
    )


def _saves(folder: Path, count: int) -> dict[str, list[float]]:
    """Interleaved, the order rotated each time."""
    import torch

    import model_checkpoint as mc
    from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker

    state, tensors = {"w": np.zeros(100, np.float32)}, {"w": torch.zeros(100)}
    folder.mkdir(parents=True)
    run = ExperimentTracker("bench", database_url=f"sqlite:///{folder}/runs.db")
    every = EnhancedCheckpointManager(run, f"{folder}/every", max_checkpoints=None)
    few = EnhancedCheckpointManager(run, f"{folder}/few", max_checkpoints=10)

    def torch_file(number: int) -> None:
        with open(folder / f"{number}.pt", "wb") as file:
            torch.save(tensors, file)
            file.flush()
            os.fsync(file.fileno())

    ways: dict[str, Callable[[int], object]] = {
        "mc.save": lambda n: mc.save(f"{folder}/plain", state, step=n, metrics={"val_loss": 1 / (n + 1)}),
        "manager": lambda n: every.save_checkpoint(state, step=n, val_loss=1 / (n + 1), save_rng=False),
        "manager, keep 10": lambda n: few.save_checkpoint(state, step=n, val_loss=1 / (n + 1), save_rng=False),
        "manager, random generators too": lambda n: every.save_checkpoint(state, step=n, val_loss=1 / (n + 1)),
        "torch": torch_file,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(count):
        order = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
        for name in order:
            began = time.perf_counter()
            ways[name](number)
            times[name].append(time.perf_counter() - began)
    for manager in (every, few):
        manager.close()
    run.close()
    run.connection.close()
    shutil.rmtree(folder)
    return {name: found[count // 10 :] for name, found in times.items()}


def _reindex(folder: Path, count: int) -> float:
    """Checkpoints per second."""
    import model_checkpoint as mc
    from model_checkpoint.checkpoint.catalog.reindexing import reindex
    from model_checkpoint.database import EnhancedDatabaseConnection

    for step in range(count):
        mc.save(f"{folder}/root", {"w": np.zeros(4)}, step=step, metrics={"val_loss": 1 / (step + 1), "accuracy": 0.5})
    best = 0.0
    for number in range(3):
        with EnhancedDatabaseConnection(f"sqlite:///{folder}/{number}.db") as db:
            began = time.perf_counter()
            report = reindex(f"{folder}/root", db)
            best = max(best, report.checkpoints / (time.perf_counter() - began))
    shutil.rmtree(folder)
    return best
