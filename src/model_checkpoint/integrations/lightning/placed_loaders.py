"""Placed loaders: loaders that Lightning iterates over, begun anywhere.

A loader opens its epoch at the first batch that is asked for, not when its iterator is made: by then Lightning and the
user's hooks have drawn what they draw. Asking the first loader for a batch is also the one moment that lies between two
bodies, with everything before it done and nothing of the next read: there the run saves, or leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from model_checkpoint.errors import StructureMismatch
from model_checkpoint.integrations.feeding.feed import feed_for
from model_checkpoint.integrations.feeding.index_stream import length_of
from model_checkpoint.integrations.feeding.torch_loader import TorchLoader
from model_checkpoint.integrations.loop.place import RunPlace
from model_checkpoint.integrations.loop.saved_run import SavedRun
from model_checkpoint.tree import RngState, rng_state


class _UsersLoader:
    """What stands in for a loader; for whatever else is asked of it, it is the user's."""

    _loader: Any

    def __getattr__(self, name: str) -> Any:
        if name in ("_loader", "_iterator"):  # ours to end, not Lightning's
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)


class TrainLoader(_UsersLoader, Iterator[Any]):
    """One loader of the training data."""

    def __init__(self, loader: Any, group: LoaderGroup, *, epoch: int) -> None:
        self._loader, self._group = loader, group
        self.feed = feed_for(loader)
        self.run = SavedRun(self.feed)
        self.run.place = RunPlace(epoch=epoch)
        self.is_sized, self.is_begun = length_of(loader) is not None, False
        self._batches: Iterator[Any] | None = None
        self._before: Any = None  # the data's own state before the newest batch, where one is read ahead

    @property
    def unwrapped(self) -> Any:
        """The user's loader."""
        return self._loader

    def __iter__(self) -> TrainLoader:
        self.is_begun = True
        if self._batches is not None:
            self.run.place, self._batches = self.run.place.after_epoch(), None
        return self

    def __next__(self) -> Any:
        self._group.ask(self)
        batches = self.open()
        if not self.is_sized:
            self._before = self.feed.place()
        batch = next(batches)
        self.feed.consumed()
        self.run.place = self.run.place.after_batch()
        return batch

    def open(self) -> Iterator[Any]:
        """The batches from the present place on."""
        if self._batches is None:
            self._batches = self.run.open_epoch()
        return self._batches

    def take_up(self, state: Mapping[str, Any]) -> None:
        """Go on within an epoch, or before one, for which the generators of the program are set already."""
        if state["place"]["begun"]:
            self.run.load_state_dict(state)  # opened with the others
        else:
            self.run.take_up(state)

    def state_at(self, *, ahead: int, over: bool) -> dict[str, Any]:
        """All of it, less the batches that were read ahead; or the end of the epoch, if that is ``over``."""
        state, place = self.run.state_dict(), self.run.place
        if over:
            place = place.after_epoch()
        elif ahead:
            place = place._replace(step=place.step - ahead, batch=place.batch - ahead)
            state["data"] = self._before
        return {**state, "place": place._asdict()}

    def state_dict(self) -> dict[str, Any]:
        """Nothing: that it can be resumed is all Lightning needs to know; the run keeps the place itself."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a state that Lightning kept of the loader itself, in a file of its own."""
        if state:
            self._loader.load_state_dict(state)


class LoaderGroup:
    """The loaders of the training data, which are read together.

    Args:
        between: Called between two bodies.
    """

    def __init__(self, between: Callable[[], None]) -> None:
        self._between, self._now = between, list[RngState]()
        self._saved: Sequence[Mapping[str, Any]] | None = None  # where to go, once all loaders are there
        self.loaders: list[TrainLoader] = []

    def wrap(self, loader: Any, *, epoch: int) -> TrainLoader:
        """Take one more loader in; after the first look at them, Lightning makes all of them anew."""
        if any(one.is_begun for one in self.loaders):
            self.close()
            self.loaders = []
        loader = loader.unwrapped if isinstance(loader, TrainLoader) else loader
        self.loaders.append(TrainLoader(loader, self, epoch=epoch))
        return self.loaders[-1]

    def ask(self, loader: TrainLoader) -> None:
        """A batch is asked for; with the first loader begins what lies between two bodies."""
        if loader is not self.loaders[0]:
            return
        resumed = self._take_up()
        for now in self._now:  # asked again before a body: whatever drew in between had drawn before the save
            now.restore()
        for one in self.loaders:  # all before the first of them is read, since opening one sets the generators
            one.open()
        if resumed or self._now:
            self._now = [rng_state()]
        self._between()

    def finish(self) -> None:
        """Where nothing was left to train, leave the program's generators as the end of the run left them."""
        if self._saved:
            RngState(self._saved[0]["now"]["program"]).restore()
            self._saved = None

    def body_begins(self) -> None:
        """From here on the generators move as they would have."""
        self._now.clear()

    def states(self, *, done: int, over: bool) -> list[dict[str, Any]]:
        """The states of all, where ``done`` batches of the epoch were trained on."""
        ahead = self.loaders[0].run.place.batch - done if len(self.loaders) == 1 and not over else 0
        return [one.state_at(ahead=ahead, over=over) for one in self.loaders]

    def go_to(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Be where :meth:`states` said, from the first batch on."""
        self._saved = states

    def _take_up(self) -> bool:
        states, self._saved = self._saved, None
        if states is None:
            return False
        if len(states) != len(self.loaders):
            raise StructureMismatch(
                f"run: saved with {len(states)} training loaders, now there are {len(self.loaders)}. "
                "Give the trainer the loaders it had, or the run another root."
            )
        RngState(states[0]["now"]["program"]).restore()
        for one, state in zip(self.loaders, states, strict=True):
            one.take_up(state)
        return True

    @property
    def reasons(self) -> list[str]:
        """Why numbers may differ from those of an unbroken run."""
        if not self.loaders:
            return []
        found = [reason for one in self.loaders for reason in one.run.reasons]
        if len(self.loaders) > 1 and not all(one.is_sized and getattr(one, "num_workers", 0) for one in self.loaders):
            found.append("several loaders, of which one has no workers or no length: what they draw is mixed")
        elif not self.loaders[0].is_sized and self.loaders[0].feed.place() is not None:
            found.append("data with a state but no length: what it draws at random one batch ahead is drawn again")
        return list(dict.fromkeys(found))

    @property
    def notes(self) -> list[str]:
        """What a resume costs."""
        return list(dict.fromkeys(note for one in self.loaders for note in one.feed.notes))

    def close(self) -> None:
        """End the workers."""
        for one in self.loaders:
            one.feed.close()


class EvaluationLoader(_UsersLoader):
    """A loader that is read by workers in between: what they draw depends on the step, not on their past.

    Workers that outlive a validation would have been seeded once from the program's generator, and once more after a
    resume: all that the model draws would be shifted.
    """

    def __init__(self, loader: Any, where: Callable[[], tuple[int, int]]) -> None:
        self._loader, self._where = loader, where
        self._feed = TorchLoader(loader)

    def __iter__(self) -> Iterator[Any]:
        step, epoch = self._where()
        return self._feed.open(epoch=epoch, skip=0, base=step)

    def close(self) -> None:
        """End the workers."""
        self._feed.close()
