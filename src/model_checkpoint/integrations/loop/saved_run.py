"""Saved run: all a run must bring back beside the caller's objects, and the order in which it comes back.

Generators are taken twice: as they were when the epoch began, because the order of the data follows from them, and as
they are now. On the way back the first set decides the order, the place is found, workers read ahead; what all that
drew is forgotten when the second set is put in force, last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from model_checkpoint.errors import StructureMismatch
from model_checkpoint.integrations.around.surroundings import Surroundings
from model_checkpoint.integrations.feeding.feed import Feed
from model_checkpoint.integrations.feeding.generators.seeding import set_back, states_of
from model_checkpoint.integrations.feeding.kept_numbers import changed_numbers
from model_checkpoint.integrations.feeding.loader_workers import lasting_workers
from model_checkpoint.integrations.loop.environment import differences, environment
from model_checkpoint.integrations.loop.place import RunPlace
from model_checkpoint.integrations.loop.run_metrics import RunMetrics
from model_checkpoint.tree import RngState, rng_state

Generators = dict[str, Any]

LASTING = (
    "a loader beside the run keeps its workers (persistent_workers=True), and after a resume their seed is drawn once "
    "more: give it a generator of its own"
)


class SavedRun:
    """The part ``run`` of a checkpoint: place, generators, the data's own state, metrics, what numbers depend on."""

    def __init__(self, feed: Feed, *, metrics: RunMetrics | None = None, around: Surroundings | None = None) -> None:
        self._feed, self.metrics, self._around = feed, metrics or RunMetrics(), around or Surroundings()
        self.place = RunPlace()
        self.pending = False  # whether it is saved with gradients that wait to be stepped
        self.reasons: list[str] = list(feed.doubts)
        self._lasting = lasting_workers()
        self._known = list(feed.generators)  # those of the data that are there from the beginning
        self._late = 0  # how many more there were later
        self._start = self._generators()
        self._loaded: Mapping[str, Any] | None = None
        self._elsewhere: list[str] = []  # what was another environment when it was loaded

    def state_dict(self) -> dict[str, Any]:
        """All of it, as it is now; before the epoch is opened, generators and data are still those it goes on from."""
        taken = self._loaded
        now = self._generators()
        around = self._take_around() if taken is None else taken.get("around")  # first: it may add to the reasons
        return {
            "place": self.place._asdict(),
            "start": self._start if taken is None else taken["start"],
            "now": now if taken is None else taken["now"],
            "data": self._feed.place() if taken is None else taken["data"],
            "order": self._feed.order if taken is None else taken["order"],
            "late": self._late,
            "environment": environment(),
            "reasons": list(self.reasons),
            "pending": self.pending,
            "metrics": self.metrics.state_dict(),
            "around": around,
        }

    def _take_around(self) -> dict[str, Any]:
        """What stands around the loop, once it has begun."""
        taken = self._around.take(besides=self._feed.generators)
        self._add_reasons(self._around.doubts)
        return taken

    def put_down(self, *, in_body: bool) -> None:
        """The loop was left before its end: the next one goes on from here as a new process would.

        Of a body that was left nobody knows how much was done: it counts as done, which is said.
        """
        if in_body:
            self.place = self.place.after_batch()
            self.reasons.append(f"the loop was left in the body of step {self.place.step}, which counts as done")
        self.pending = False  # gradients that wait are still there
        self._loaded = self.state_dict()

    def prepare_to_load(self, saved: Callable[[str], Any]) -> None:
        """Refuse what is no state of a run before anything changes."""
        place = saved("place")
        if not isinstance(place, dict) or set(place) != set(self.place._asdict()):
            raise StructureMismatch(
                f"run: this part was not saved by a Run of this version, its place is {place!r}. "
                "Load the other parts with mc.load, or give the run another root."
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the place; generators and data follow when the epoch is opened."""
        self.place = RunPlace(**state["place"])
        self._elsewhere = differences(state["environment"], environment())
        known = [*state["reasons"], *self._elsewhere, *self.reasons]
        self._loaded, self.reasons = state, list(dict.fromkeys(known))
        self._late = state.get("late", 0)  # not in what was saved before they were counted
        self.pending = bool(state.get("pending"))
        if "metrics" in state:  # not in what was saved before they were kept here
            self.metrics.load_state_dict(state["metrics"])

    def open_epoch(self) -> Iterator[Any]:
        """The batches of the present epoch from the present place on."""
        loaded = self._loaded
        if loaded is not None or not self._around.is_known:
            self._around.look(besides=self._feed.generators)
            self._add_reasons(self._around.doubts)
        if loaded is None:
            return self._begin()
        self._compare_environment(loaded["environment"])
        if loaded["data"] is not None:
            self._feed.go_to(loaded["data"])
        if self.pending:
            self.reasons.append("it was saved with gradients that were not stepped, and they are lost")
        if not self.place.begun:  # the run had ended, and was given more epochs
            self._restore_now(loaded)
            self._recall()
            self._loaded = None
            return self._begin()
        self._restore(loaded["start"])
        self._start = self._generators()
        batches = self._open()
        if loaded["order"] and self._feed.order != loaded["order"]:
            self.reasons.append("the order of the data is another: the dataset, its sampler or the batch size changed")
        self._restore_now(loaded)  # last: what finding the place drew does not count
        self._loaded = None
        return batches

    def _compare_environment(self, saved: Mapping[str, Any]) -> None:
        """Once more: the program may have chosen something since the run was made."""
        now = differences(saved, environment())
        self.reasons = [one for one in self.reasons if one in now or one not in self._elsewhere]
        self._add_reasons(now)

    def take_up(self, state: Mapping[str, Any]) -> Iterator[Any] | None:
        """Be where one of several loaders was; its batches, if its epoch had begun. The program's generators may move.

        One that had not begun is opened by :meth:`open_epoch` when it is its turn, and draws then what it would have.
        """
        if state["place"]["begun"]:
            self.load_state_dict(state)
            return self.open_epoch()
        self.place = RunPlace(**state["place"])
        if state["data"] is not None:
            self._feed.go_to(state["data"])
        self._late = state.get("late", 0)
        self._set_data_back(state["now"])
        self._recall()
        return None

    def stay(self) -> None:
        """Put the generators in force where nothing is left to train: what follows draws what it would have drawn."""
        if self._loaded is not None:
            self._restore(self._loaded["now"])

    def _recall(self) -> None:
        if self.place.epoch:
            self._feed.recall_base(self.place.base)

    def _begin(self) -> Iterator[Any]:
        self.place = self.place.begun_with(self._feed.draw_base())
        self._start = self._generators()
        return self._open()

    def _open(self) -> Iterator[Any]:
        place = self.place
        return self._feed.open(epoch=place.epoch, skip=place.batch, base=place.base)

    def _generators(self) -> Generators:
        found = self._in_order()
        doubts = self._feed.doubts if lasting_workers() == self._lasting else (*self._feed.doubts, LASTING)
        self._add_reasons(doubts)  # new ones may come
        self._late = max(self._late, len(found) - len(self._known))
        return {
            "program": rng_state().state_dict(),
            "data": states_of(found),
            "numbers": dict(self._feed.numbers),
        }

    def _add_reasons(self, reasons: Iterable[str]) -> None:
        self.reasons += [one for one in reasons if one not in self.reasons]

    def _in_order(self) -> list[Any]:
        """The generators of the data, those that were made later after the others."""
        found, known = list(self._feed.generators), {id(one) for one in self._known}
        if len(found) == len(self._known):
            return found
        return sorted(found, key=lambda one: id(one) not in known)

    def _restore_now(self, loaded: Mapping[str, Any]) -> None:
        self._restore(loaded["now"])
        self._add_reasons(self._around.set_back(loaded.get("around")))

    def _restore(self, taken: Generators) -> None:
        RngState(taken["program"]).restore()
        self._set_data_back(taken)

    def _set_data_back(self, taken: Generators) -> None:
        numbers = taken.get("numbers", {})  # not in what was saved before they were kept
        self._add_reasons(changed_numbers(numbers, self._feed.numbers))
        states, found = taken["data"], self._in_order()
        if not 0 <= len(states) - len(found) <= self._late:
            raise StructureMismatch(
                f"run: the data was saved with {len(states)} generators of its own, now it has {len(found)}. "
                "Make loader, sampler and dataset as they were."
            )
        set_back(found, states[: len(found)])
