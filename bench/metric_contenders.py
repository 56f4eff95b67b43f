"""Metric contenders: log metrics with one library in a process of its own, and print what it cost as JSON.

``python metric_contenders.py LIBRARY FOLDER CALLS METRICS``; run by the interpreter that has the library.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Log = Callable[[dict[str, float], int], Any]
CONTENDERS: dict[str, Callable[[Path], tuple[Log, Callable[[], Any], Callable[[], int]]]] = {}


def contender(name: str):
    """Enter a library: from a folder to how to log, how to wait for all of it, and how many points are stored."""
    return lambda function: CONTENDERS.setdefault(name, function)


@contender("ours")
def ours(folder: Path):
    from model_checkpoint import ExperimentTracker

    tracker = ExperimentTracker("bench", database_url=f"sqlite:///{folder}/ours.db")

    def finish():
        if not tracker.flush():
            raise SystemExit("flush: not everything is in the database")
        tracker.close()

    return tracker.log_metrics, finish, lambda: rows(folder / "ours.db", "select count(*) from experiment_metrics")


@contender("trackio")
def trackio(folder: Path):
    os.environ["TRACKIO_DIR"] = str(folder / "trackio")
    import trackio

    trackio.init(project="bench", name="bench", embed=False)

    def stored() -> int:
        (database,) = (folder / "trackio").glob("bench*.db")
        with sqlite3.connect(database) as connection:
            texts = [text for (text,) in connection.execute("select metrics from metrics")]
        return sum(len(json.loads(text)) for text in texts)

    return lambda metrics, step: trackio.log(metrics, step=step), trackio.finish, stored


@contender("mlflow")
def mlflow(folder: Path):
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.create_experiment("bench", artifact_location=str(folder / "artifacts"))
    mlflow.set_experiment("bench")
    mlflow.start_run()
    return mlflow.log_metrics, mlflow.end_run, lambda: rows(folder / "mlflow.db", "select count(*) from metrics")


def rows(database: Path, query: str) -> int:
    """What a query counts."""
    with sqlite3.connect(database) as connection:
        return int(connection.execute(query).fetchone()[0])


def main(name: str, folder: str, calls: str, metrics: str) -> None:
    """Warm up, log, wait for all of it, look that it is there, and print the figures."""
    log, finish, stored = CONTENDERS[name](Path(folder))
    values = {f"train/metric_{i:02d}": 0.5 + i for i in range(int(metrics))}
    for step in range(10):
        log(values, step)
    costs = []
    start = time.perf_counter()
    for step in range(10, int(calls) + 10):
        values["train/metric_00"] = 1.0 / step
        before = time.perf_counter()
        log(values, step)
        costs.append(time.perf_counter() - before)
    finish()
    wall = time.perf_counter() - start
    points = (int(calls) + 10) * int(metrics)
    if stored() < points:
        raise SystemExit(f"{name}: {stored()} points are stored, {points} were logged")
    costs.sort()
    figures = {"call": costs[len(costs) // 2], "p99": costs[len(costs) * 99 // 100], "rate": points / wall}
    print("FIGURES " + json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
