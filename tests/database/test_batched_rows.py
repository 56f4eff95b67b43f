"""Why a batch is faster than its rows one by one: by what is sent, which no busy machine changes."""

import pytest
from tests.database.test_query_plans import sent_by

from model_checkpoint.database import Checkpoint, Metric
from model_checkpoint.performance import BatchProcessor

ROWS = 100


def points(first):
    return [Metric("r1", "loss", float(step), step, float(step)) for step in range(first, first + ROWS)]


def checkpoints(first):
    return [
        Checkpoint(id=f"c{n}", experiment_id="r1", step=n, metrics={"acc": 1.0}) for n in range(first, first + ROWS)
    ]


WRITERS = {
    "metrics": (points, lambda db, row: db.write_metrics([row]), "batch_save_metrics"),
    "checkpoints": (checkpoints, lambda db, row: db.save_checkpoint(row), "batch_save_checkpoints"),
}


def waits(db, work):
    """How often a database is waited for: a server with each statement, a file with each transaction."""
    begins = "BEGIN" if db._pool.engine().dialect.name == "sqlite" else ""
    return sum(statement.startswith(begins) for statement, _ in sent_by(db, work))


@pytest.mark.parametrize("kind", WRITERS)
def test_a_batch_waits_a_tenth_as_often_as_its_rows_one_by_one(db, kind):
    make, write, method = WRITERS[kind]
    single, batch = make(0), make(ROWS)
    processor = BatchProcessor(db, max_workers=1, batch_size=ROWS)

    alone = waits(db, lambda db: [write(db, row) for row in single])
    together = waits(db, lambda db: getattr(processor, method)(batch))

    assert alone >= ROWS
    assert 1 <= together * 10 <= alone
    stored = db.get_metrics("r1") if kind == "metrics" else db.get_checkpoints_by_experiment("r1")
    assert len(stored) == 2 * ROWS
