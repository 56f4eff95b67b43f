"""Fed batches: loaders and other data read one batch after the other, as a dataset of Keras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from model_checkpoint.integrations.feeding.feed import feed_for
from model_checkpoint.integrations.loop.place import RunPlace
from model_checkpoint.integrations.loop.saved_run import SavedRun
from model_checkpoint.tree import RngState, rng_state


class FedBatches(keras.utils.PyDataset):  # type: ignore[misc]  # keras has no types
    """A torch DataLoader, its workers and all; Keras asks for its batches in turn.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> data = FedBatches(DataLoader([10, 11, 12, 13, 14], batch_size=2))
        >>> data.begin_epoch(0)
        >>> len(data), [batch.tolist() for batch in data]
        (3, [[10, 11], [12, 13], [14]])
    """

    def __init__(self, loader: Any) -> None:
        super().__init__()
        self._size = len(loader)
        self._feed = feed_for(loader, apart=True)
        self._run = SavedRun(self._feed)
        self._batches: Iterator[Any] | None = None
        self._first: Any = None
        self.opened_with: RngState | None = None  # the generators of the program, where a run goes on from
        self._goes_on = False
        self._skip = self._trained = 0  # batches of this epoch that Keras does not ask for; that were trained on

    @property
    def notes(self) -> tuple[str, ...]:
        """What a resume costs."""
        return self._feed.notes

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why batches may be others after a resume."""
        return tuple(self._run.reasons)

    def __len__(self) -> int:
        return self._size - self._skip

    def begin_epoch(self, epoch: int, *, skip: int = 0) -> None:
        """Be at batch ``skip`` of an epoch; the one that is open already goes on."""
        if epoch != self._run.place.epoch:
            self._run.place = RunPlace(epoch=epoch)
            self._batches, self._skip = None, skip
            self._trained = skip

    def open(self) -> None:
        """Begin the epoch and read its first batch: samplers draw the order then, before anyone else draws."""
        if self._batches is None:
            self._batches = self._run.open_epoch()
            self.opened_with = rng_state() if self._goes_on else None
            self._goes_on = False
            self._first = self._read()

    def __getitem__(self, index: int) -> Any:
        self.open()
        return self._read() if index else self._first  # Keras reads the first once more to learn its shape

    def _read(self) -> Any:
        assert self._batches is not None
        return keras.tree.map_structure(_as_numpy, next(self._batches))

    def state_dict(self, *, done: int) -> dict[str, Any]:
        """All that decides about the batches after ``done``, whatever was read ahead."""
        for _ in range(self._trained, done):
            self._feed.consumed()
        self._trained = done
        return {**self._run.state_dict(), "place": self._run.place._replace(batch=done)._asdict()}

    def go_to(self, state: Mapping[str, Any], *, epoch: int, batch: int) -> list[str]:
        """Be where a run was; what is not as it was is told by :attr:`doubts`."""
        self._run.load_state_dict(state)
        self._skip = self._trained = batch
        self._batches, self._goes_on = None, True
        return []

    def finish(self) -> None:
        """The last epoch is over."""
        self._run.place = self._run.place.after_epoch()

    def close(self) -> None:
        """End the workers."""
        self._feed.close()


def _as_numpy(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value
