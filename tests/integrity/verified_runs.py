"""Verified runs: checkpoints to verify, and ways to damage them."""

from dataclasses import replace

import numpy as np

import model_checkpoint as mc
from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment
from model_checkpoint.integrity import CheckpointVerifier


def save(root, *steps, **options):
    for step in steps:
        mc.save(root, {"w": np.full(300_000, step, np.float32), "epoch": step}, step=step, **options)


def answers(verdict):
    return {check.name.value: check.passed for check in verdict.checks}


def verify(root, step, **options):
    return CheckpointVerifier.of_root(root, **options).verify_checkpoint(f"step-{step:08d}")


def catalog_of(url, root):
    """A catalog with a row for each checkpoint of a root; ``url`` may be a folder, for a SQLite file in it."""
    database = EnhancedDatabaseConnection(url if "://" in str(url) else f"sqlite:///{url}/catalog.db")
    database.save_experiment(Experiment(id="r1", name="baseline"))
    for info in mc.list_checkpoints(root):
        row = Checkpoint(
            id=f"c{info.step}",
            experiment_id="r1",
            step=info.step,
            name=info.prefix,
            root=str(root),
            file_path=info.path,
        )
        database.save_checkpoint(replace(row, file_size=info.size_bytes))
    return database
