"""Hand-written: the loop that tutorials show, with all that a careful user adds to it.

Model, optimizer, schedule, scaler, averages, every generator and the place are saved together, the new file takes the
place of the old one by a rename, and a resumed epoch passes over the batches it has had.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.integrations.loop.loop_training import DATA, train
from tests.integrations.trainer_data import weights

from proof.resuming.way import Way, ours


class HandWritten:
    """Looks to the training as ``mc.Run`` does, so that both train by the same lines."""

    exact = "hand-written"

    def __init__(self, root: str | Path, *, data: Any, epochs: int, every: int, progress: bool, **objects: Any) -> None:
        self._file, self._data, self._epochs, self._every = Path(root) / "last.pt", data, epochs, every
        self._objects, self._epoch, self._batch, self.step = objects, 0, 0, 0
        self.metrics: dict[str, float] = {}
        self.resumed_from: int | None = None
        self._file.parent.mkdir(exist_ok=True)
        if self._file.exists():
            self._load()

    def log(self, **metrics: Any) -> None:
        """Keep the newest values."""
        self.metrics.update({name: float(value) for name, value in metrics.items()})

    def __iter__(self) -> Iterator[Any]:
        for epoch in range(self._epoch, self._epochs):
            had, self._epoch = self._batch, epoch
            for number, batch in enumerate(self._data):
                if number < had:
                    continue
                if number == had and had:
                    self._set_generators()  # those it read past have drawn
                yield batch
                self.step, self._batch = self.step + 1, number + 1
                if self.step % (2 * self._every) == 0:  # gradients of two batches are stepped together
                    self._save()
            self._batch = 0

    def _save(self) -> None:
        saved = {name: one.state_dict() for name, one in self._objects.items()}
        generators = {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate()}
        saved |= {"place": (self._epoch, self._batch, self.step), "generators": generators}
        torch.save(saved, self._file.with_suffix(".new"))
        os.replace(self._file.with_suffix(".new"), self._file)

    def _load(self) -> None:
        saved: Mapping[str, Any] = torch.load(self._file, weights_only=False)
        for name, one in self._objects.items():
            one.load_state_dict(saved[name])
        self._epoch, self._batch, self.step = saved["place"]
        self.resumed_from, self._generators = self.step, saved["generators"]
        self._set_generators()

    def _set_generators(self) -> None:
        torch.set_rng_state(self._generators["torch"])
        np.random.set_state(self._generators["numpy"])
        random.setstate(self._generators["python"])


KINDS = ("shuffled", "workers", "persistent workers", "stream, workers")


def under_run(root: str | Path, out: str | Path, *, kind: str, pause: float) -> None:
    """Train under ``mc.Run``."""
    train(root, out, make=DATA[kind], pause=pause)


def by_hand(root: str | Path, out: str | Path, *, kind: str, pause: float) -> None:
    """Train by hand."""
    model = train(root, out, make=DATA[kind], pause=pause, loop=HandWritten)
    Path(out).write_text(weights(model))


WAYS = [
    ours("mc.Run", under_run, KINDS),
    Way("torch.save by hand", by_hand, KINDS, lambda root: (root / "last.pt").exists()),
]
__all__ = ["WAYS"]
