"""Catalog: the same questions to a thousand checkpoints and to a hundred thousand; one series of many millions."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from bench.measuring.results import Section, Verdict
from bench.measuring.rounds import Say
from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment, Metric

_FEW, _MANY = 1_000, 100_000  # checkpoints
_RUNS, _NAMES, _STEPS = 20, 50, 10_000  # ten million points
_FEW_NAMES = 8
_EACH = 20  # so many of each kind in one round
_BATCH = 100  # steps written at once, of all names

Times = dict[str, list[float]]
Catalogs = dict[str, EnhancedDatabaseConnection]


def run(folder: Path, *, rounds: int, scale: float, say: Say) -> Section:
    """Fill catalogs of both sizes and ask them by turns; each figure is the median of all."""
    shutil.rmtree(folder, ignore_errors=True)
    many, runs = max(2 * _FEW, round(_MANY * scale)), max(1, round(_RUNS * scale))
    catalogs = {name: EnhancedDatabaseConnection(f"sqlite:///{folder}/{name}.db") for name in ("few", "many")}
    try:
        saved = {name: _save(catalogs[name], _FEW if name == "few" else many) for name in catalogs}
        say(f"saved {_FEW:,} and {many:,} checkpoints")
        sizes = {"few": (1, _FEW_NAMES), "many": (runs, _NAMES)}
        written = {name: _write(catalogs[name], *sizes[name]) for name in catalogs}
        say(f"wrote {written['many'][0]:,} points")
        times: Times = {}
        for number in range(rounds + 1):
            _round({} if number == 0 else times, catalogs, number)
            say(f"round {number}")
        size = sum(path.stat().st_size for path in folder.glob("many.db*"))
    finally:
        for one in catalogs.values():
            one.close()
    return _section(times, many, saved["many"], written["many"], size)


def _section(times: Times, many: int, saved: float, written: tuple[int, float], size: int) -> Section:
    asked = ("latest", "best of a metric", "page of 50", "save one")
    growth = [
        Verdict(claim=f"{what} at {many:,} / at {_FEW:,} checkpoints", value=_ratio(times, what), limit=1.5)
        for what in asked
    ]
    points, rate = written
    claim = f"series of {_STEPS:,} among {points:,} points / among {_FEW_NAMES * _STEPS:,}"
    alone = Verdict(claim=claim, value=_ratio(times, "series"), limit=1.5)
    whole = median(times["series, many"]) * 1e3
    return Section(
        title="Catalog",
        intro=f"SQLite catalogs of {_FEW:,} and of {many:,} checkpoints; {points:,} points of metrics, in series of "
        f"{_STEPS:,}.",
        grid=[["what", "median ms"], *_rows(times)],
        facts={
            "checkpoints saved in batches": f"{saved:,.0f} per second",
            "points written": f"{rate:,.0f} per second",
            "file": f"{size / 1e6:,.0f} MB",
        },
        verdicts=[*growth, alone, Verdict(claim=f"series of {_STEPS:,} points", value=whole, limit=100, unit=" ms")],
    )


def _save(db: EnhancedDatabaseConnection, count: int) -> float:
    """Save checkpoints of one run, and say how many a second."""
    db.save_experiment(Experiment(id="run", name="run"))
    start = time.perf_counter()
    for first in range(0, count, _FEW):
        db.save_checkpoints([_checkpoint(number) for number in range(first, min(first + _FEW, count))])
    return count / (time.perf_counter() - start)


def _checkpoint(number: int) -> Checkpoint:
    metrics = {"val_loss": (number * 7919 % 100_003) / 100_003, "accuracy": (number * 104_729 % 99_991) / 99_991}
    return Checkpoint(id=f"c{number:07}", experiment_id="run", step=number, metrics=metrics, file_size=number)


def _write(db: EnhancedDatabaseConnection, runs: int, names: int) -> tuple[int, float]:
    """Write points of all runs side by side, and say how many, and how many a second."""
    keys = [f"metric/{number}" for number in range(names)]
    for run in range(runs):
        db.save_experiment(Experiment(id=f"run{run}", name="run"))
    start = time.perf_counter()
    for first in range(0, _STEPS, _BATCH):
        steps = range(first, first + _BATCH)
        for run in range(runs):
            db.write_metrics([Metric(f"run{run}", name, step / 3, step, 1e9 + step) for name in keys for step in steps])
    total = runs * names * _STEPS
    return total, total / (time.perf_counter() - start)


def _round(times: Times, catalogs: Catalogs, number: int) -> None:
    for turn in range(_EACH):
        extra = _checkpoint(10**7 + number * _EACH + turn)
        for name, db in catalogs.items():
            _timed(times, f"latest, {name}", lambda db=db: db.latest("run"))
            _timed(times, f"best of a metric, {name}", lambda db=db: db.best("run", "val_loss", "min", 3))
            _timed(times, f"page of 50, {name}", lambda db=db: db.page("run", limit=50))
            _timed(times, f"save one, {name}", lambda db=db, extra=extra: db.save_checkpoint(extra))
            series = _timed(times, f"series, {name}", lambda db=db: db.series("run0", "metric/7"))
            db.forget_checkpoint(extra.id)
            if len(series) != _STEPS:
                raise RuntimeError(f"read {len(series)} of {_STEPS} points")


def _timed(times: Times, what: str, act: Callable[[], object]):
    start = time.perf_counter()
    answer = act()
    times.setdefault(what, []).append(time.perf_counter() - start)
    return answer


def _ratio(times: Times, what: str) -> float:
    """The median of the ratios of what was done side by side."""
    pairs = zip(times[f"{what}, many"], times[f"{what}, few"], strict=True)
    return median(above / below for above, below in pairs)


def _rows(times: Times) -> Iterator[list[str]]:
    for what, walls in times.items():
        yield [what, f"{median(walls) * 1e3:.2f}"]
