"""Keras ways: ``KerasRun``, and ``BackupAndRestore`` by epochs or batches; the backend is what KERAS_BACKEND says."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import keras
from tests.integrations import keras_training

from proof.resuming.way import Way, ours


def by_keras(root: str | Path, out: str | Path, *, kind: str, pause: float, save_freq: Any) -> None:
    """Train as the documentation of Keras has it: seeds set, the backup written twice so that a kill cannot tear it."""
    model = keras_training.build(kind)
    backup = keras.callbacks.BackupAndRestore(str(root), save_freq=save_freq, double_checkpoint=True)
    keras_training.fit(model.fit, kind, out, pause, place=lambda: int(model.optimizer.iterations), first=[backup])
    Path(out).write_text(keras_training.weights(model.variables).hexdigest())


def saved(root: Path) -> bool:
    """Whether a backup is whole; its place is written last."""
    return (root / "training_metadata.json").exists()


KINDS = ("dataset", "persistent workers") if keras.backend.backend() == "torch" else ("loader",)
WAYS = [
    ours("KerasRun", keras_training.train, KINDS),
    Way("BackupAndRestore, every epoch", partial(by_keras, save_freq="epoch"), KINDS, saved),
    Way("BackupAndRestore, every 3 batches", partial(by_keras, save_freq=3), KINDS, saved),
]
__all__ = ["WAYS"]
