"""A crowd: what processes do that all write to one catalog at once; ``python -m tests.database.crowd URL NUMBER``."""

import multiprocessing
import sys
import time
import traceback

from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment, Metric

SAVES, BATCHES, KEYS, STEPS = 64, 16, 20, 5


def save(url, number):
    """Open, save 64 checkpoints, hand a flag around."""
    with EnhancedDatabaseConnection(url) as db:
        db.save_experiment(Experiment(id="shared", name="x"))
        for count in range(SAVES):
            name = f"{number}-{count}"
            db.save_checkpoint(
                Checkpoint(id=name, experiment_id="shared", step=count, loss=float(count), metrics={f"k{number}": 1.0})
            )
            if count % 8 == 0:
                db.update_best_flags("shared", name, is_best_loss=True)


def log(url, number):
    """Log the same 20 series as everybody else, in another order of names."""
    with EnhancedDatabaseConnection(url) as db:
        db.save_experiment(Experiment(id="shared", name="x"))
        names = [f"m{(number + key) % KEYS}" for key in range(KEYS)]
        for batch in range(BATCHES):
            steps = range(batch * 10, batch * 10 + STEPS)
            db.write_metrics([Metric("shared", name, 1.0, step, float(number)) for step in steps for name in names])
            db.heartbeat("shared", step=batch)


def gathered(works):
    """Run them all at once, each in a process of its own, and return what went wrong."""
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()

    def one(work, *arguments):
        try:
            work(*arguments)
        except BaseException:
            told.put(traceback.format_exc())
            raise

    processes = [context.Process(target=one, args=work) for work in works]
    for process in processes:
        process.start()
    for process in processes:
        process.join(240)
    errors = [] if told.empty() else [told.get()]
    return errors + [f"exit code {process.exitcode}" for process in processes if process.exitcode != 0]


def save_for_ever(url, number):
    """Save until killed; a line is printed only when the rows are acknowledged; what failed is tried again."""
    count, db = 0, EnhancedDatabaseConnection(url)
    while True:
        try:
            db.save_checkpoint(Checkpoint(id=f"{number}-{count}", experiment_id="shared", step=count))
            db.write_metrics([Metric("shared", "loss", float(count), count, float(number))])
        except ConnectionError:
            time.sleep(0.05)
        else:
            print(count, flush=True)
            count += 1


if __name__ == "__main__":
    save_for_ever(sys.argv[1], int(sys.argv[2]))
