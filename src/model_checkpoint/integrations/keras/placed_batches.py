"""Placed batches: data with indices, from any place of an epoch, in an order that depends on its number alone.

They are datasets of Keras, so Keras reads them as it reads any: ahead, in threads or in processes. What a batch draws
at random depends on the seed, the epoch and its index, and leaves the generators of the program alone.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from model_checkpoint import forks
from model_checkpoint.integrations.feeding.generators.seeding import mix, seed_all
from model_checkpoint.tree import rng_state

_BEGIN, _END = 1, 2  # of an epoch


class IndexedBatches(keras.utils.PyDataset):  # type: ignore[misc]  # keras has no types
    """What arrays and datasets of the user have in common: a length, an order for each epoch, a place in it."""

    notes: tuple[str, ...] = ()
    opened_with = None  # nothing is drawn when an epoch begins

    def __init__(self, *, seed: int, shuffle: bool, **workers: Any) -> None:
        super().__init__(**workers)
        self._seed, self._shuffle = seed, shuffle
        self._epoch = self._skip = 0
        self._order: np.ndarray[Any, Any] | None = None

    @property
    def doubts(self) -> tuple[str, ...]:
        """Threads share the generators of the program."""
        if self.workers > 1 and not self.use_multiprocessing:
            return ("data read in threads: what callbacks draw at random meanwhile may be mixed with what it draws",)
        return ()

    def size(self) -> int:
        """What there is to order."""
        raise NotImplementedError

    def begin_epoch(self, epoch: int, *, skip: int = 0) -> None:
        """Be at batch ``skip`` of an epoch."""
        self._epoch, self._skip, self._order = epoch, skip, None

    def open(self) -> None:
        """Nothing is drawn when an epoch begins."""

    def order(self) -> np.ndarray[Any, Any]:
        """The order of the present epoch."""
        if self._order is None:
            size = self.size()
            drawn = np.random.default_rng([self._seed, self._epoch])
            self._order = drawn.permutation(size) if self._shuffle else np.arange(size)
        return self._order

    def state_dict(self, *, done: int) -> dict[str, Any]:
        """What the order depends on."""
        return {"seed": self._seed, "shuffle": self._shuffle, "size": self.size()}

    def go_to(self, state: Mapping[str, Any], *, epoch: int, batch: int) -> list[str]:
        """Be where a run was; say what is not as it was."""
        self.begin_epoch(epoch, skip=batch)
        now = self.state_dict(done=0)
        return [
            f"{name} of the data was {value}, is {now.get(name)}" for name, value in state.items() if value != now[name]
        ]

    def finish(self) -> None:
        """The last epoch is over."""

    def close(self) -> None:
        """Nothing is kept open."""


class ArrayBatches(IndexedBatches):
    """Arrays, cut into batches.

    Example:
        >>> data = ArrayBatches((np.arange(6),), batch_size=2, seed=0, shuffle=True)
        >>> whole = [batch.tolist() for (batch,) in data]
        >>> data.begin_epoch(0, skip=2)
        >>> [batch.tolist() for (batch,) in data] == whole[2:]
        True
    """

    def __init__(self, arrays: tuple[Any, ...], *, batch_size: int, seed: int, shuffle: bool) -> None:
        super().__init__(seed=seed, shuffle=shuffle)
        self._arrays, self._batch_size = arrays, batch_size

    def size(self) -> int:
        """The number of samples."""
        return len(keras.tree.flatten(self._arrays)[0])

    def __len__(self) -> int:
        return -(-self.size() // self._batch_size) - self._skip

    def __getitem__(self, index: int) -> Any:
        first = (index + self._skip) * self._batch_size
        some = self.order()[first : first + self._batch_size]
        return keras.tree.map_structure(lambda array: _standard(array[some]), self._arrays)

    def state_dict(self, *, done: int) -> dict[str, Any]:
        """What the order depends on."""
        return {**super().state_dict(done=done), "batch_size": self._batch_size}


class DatasetBatches(IndexedBatches):
    """A dataset of the user, its batches seeded one by one, in an order of our own if they are to be shuffled."""

    def __init__(self, inner: Any, *, seed: int, shuffle: bool) -> None:
        workers = {name: getattr(inner, name) for name in ("workers", "use_multiprocessing", "max_queue_size")}
        super().__init__(seed=seed, shuffle=shuffle, **workers)
        self._inner, self._begun = inner, -1  # the newest epoch the user's dataset was told to begin
        self._lock, self._owner = forks.lock(), os.getpid()

    def __getstate__(self) -> dict[str, Any]:  # for processes that are not forked
        return {**vars(self), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=forks.lock())

    def size(self) -> int:
        """The number of batches."""
        return len(self._inner)

    def __len__(self) -> int:
        return self.size() - self._skip

    def __getitem__(self, index: int) -> Any:
        if os.getpid() != self._owner:
            _be_deaf()
        which = int(self.order()[index + self._skip])
        with self._seeded(which):
            return self._inner[which]

    def begin_epoch(self, epoch: int, *, skip: int = 0) -> None:
        """Be at batch ``skip``; the user's dataset lives through all epochs before, as it may shuffle at their ends."""
        super().begin_epoch(epoch, skip=skip)
        while self._begun < epoch:
            self._tell_end()
            self._begun += 1
            with self._seeded(self._begun, _BEGIN):
                self._inner.on_epoch_begin()

    def finish(self) -> None:
        """The last epoch is over."""
        self._tell_end()

    def _tell_end(self) -> None:
        if self._begun >= 0:
            with self._seeded(self._begun, _END):
                self._inner.on_epoch_end()

    @contextmanager
    def _seeded(self, *what: int) -> Iterator[None]:
        with self._lock:
            outer = rng_state()
            seed_all(mix(self._seed, self._epoch if len(what) == 1 else 0, *what), self._inner)
            try:
                yield
            finally:
                outer.restore()


def _standard(array: Any) -> Any:
    """Numbers of NumPy in the precision Keras computes with, as its own reader of arrays has them."""
    floating = isinstance(array, np.ndarray) and np.issubdtype(array.dtype, np.floating)
    return array.astype(keras.config.floatx(), copy=False) if floating else array


def _be_deaf() -> None:
    """In a worker process, outlive the Ctrl-C meant for the one that will save; SIGTERM is how pools end workers."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
