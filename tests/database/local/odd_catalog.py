"""A catalog of odd rows, and how two of its kind are compared."""

import dataclasses
import math
import shutil
import sqlite3
from contextlib import closing

from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment, LineageEdge, Metric
from model_checkpoint.database.summed_records import Series

RUNS = ["r1", "r2", "r3"]
IDS = [f"c{n}" for n in range(9)]
ODD = {"lr": math.inf, "big": 1 << 80, "$float": "x", "deep": [{"a": None}], "ü": "\u2028"}
GIVEN = {"audit_log": {"id", "at"}, "checkpoints": {"deleted_at"}}  # by a clock or at random


def fill(where):
    """Runs that were heard of and not, odd numbers and words, checkpoints of every state, more than one list holds."""
    with EnhancedDatabaseConnection(where) as db:
        for n, run in enumerate(RUNS):
            db.save_experiment(
                Experiment(id=run, name=f"run ü {n}", tags=["a", "b"][:n], config=ODD, start_time=9.5, step=n)
            )
        db.heartbeat("r1", step=70, at=100.0)
        db.heartbeat("r2", at=101.0)
        for n, id in enumerate(IDS):
            db.save_checkpoint(checkpoint_row(n, id))
        db.save_checkpoints([Checkpoint(id=f"many{n}", experiment_id="r3", step=n, root="big") for n in range(1200)])
        db.delete_checkpoint("c3")
        db.flag_best("r1", "metric", ["c4"])
        values = [0.5, math.nan, math.inf, -math.inf, 0.25]
        db.write_metrics([Metric("r1", "loss", value, step, 5.0 + step) for step, value in enumerate(values)])
        db.write_metrics([Metric("r2", "acc/ü", math.nan, step, 1.0) for step in range(3)])
        db.write_metrics([Metric("r1", "long", math.sin(step), step, 1.0) for step in range(25_000)])
        db.add_edge(LineageEdge(parent="r1", child="c1", kind="saved", step=1, created_at=1.0))
        db.add_edge(LineageEdge(parent="c1", child="r2", kind="resumed", step=1, created_at=2.0))
        for n in range(5):
            db.record_audit("policy", "r1", details={"root": "here", "keep": [f"last:{n}"], "odd": ODD})
        db.record_audit("save", "c1", actor="ann@lab:7")


def checkpoint_row(n, id):
    odd = [math.nan, math.inf, -math.inf, 0.5, None][n % 5]
    return Checkpoint(
        id=id,
        experiment_id=RUNS[n % 2],
        epoch=n if n % 3 else None,
        step=n // 2,
        loss=odd,
        val_loss=None if n % 2 else 0.25,
        metrics={"acc": 0.5, "odd": math.nan},
        metadata=ODD,
        root="here" if n % 2 else "there",
        parts=["model"],
        tags=["ü"] * (n % 3),
        pinned=n % 4 == 0,
        unique_bytes=None if n % 2 else 7,
        file_size=10,
        health=["unknown", "damaged", "healthy"][n % 3],
        verified_at=50.0 if n % 2 else None,
        created_at=float(n),
    )


def plain(value):
    """Comparable: NaN equals itself, and arrays are their bytes."""
    if isinstance(value, Series):
        return [column.tobytes() for column in (value.steps, value.timestamps, value.values)]
    if dataclasses.is_dataclass(value):
        return type(value).__name__, {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(one) for one in value]
    return (type(value).__name__, repr(value))


def copied(url, tmp_path):
    """The same in a file of its own."""
    shutil.copy(url.removeprefix("sqlite:///"), tmp_path / "copy.db")
    return f"sqlite:///{tmp_path}/copy.db"


def left_in(url):
    """All rows of a file, but for what nobody can tell beforehand."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        file.row_factory = sqlite3.Row
        tables = [row[0] for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {
            table: sorted(
                repr([(key, row[key] is None if key in GIVEN.get(table, ()) else row[key]) for key in row.keys()])  # noqa: SIM118
                for row in file.execute(f'SELECT * FROM "{table}"')
            )
            for table in tables
        }
