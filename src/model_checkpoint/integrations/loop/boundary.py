"""Boundary: at which boundaries between two bodies a run may save, saves, or leaves.

Between two bodies, never inside one: what follows a save in a body would be lost. And only where an optimizer stepped
in the body just ended and none holds gradients that wait for its step, since no checkpoint holds those.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from types import FrameType
from typing import Any, NoReturn, Protocol

from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.retention.prune import prune
from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.background.preemption import Preemption, preemption
from model_checkpoint.engine.background.save_async import finish_saves, save_async
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.jobs.job import SaveJob
from model_checkpoint.engine.writing.save import save
from model_checkpoint.errors import CheckpointException, LazyRefused, OptionInvalid, StateChanged, WrongReference
from model_checkpoint.integrations.feeding.loader_workers import spare_workers
from model_checkpoint.storage.locate import Root

log = logging.getLogger("model_checkpoint.run")

_GRADIENT, _VERSION = attrgetter("grad"), attrgetter("_version")
_SOON = 0.01  # seconds
_DEEPEST = 8  # optimizers are looked for in dicts and lists of objects that have one
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class StepWatch:
    """Sees whether optimizers stepped in the body just ended, and whether gradients wait in any that did not.

    They are found in dicts, lists and whatever has an ``optimizer``. At least one must have stepped; another one may
    have had nothing to do.

    Example:
        >>> StepWatch([]).is_clean  # where nothing steps, every boundary is a good one
        True
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        found = {id(one): one for one in _optimizers_in(list(objects), _DEEPEST)}
        self._seen = [_Stepping(one, alone=len(found) == 1) for one in found.values()]

    def begin_body(self) -> None:
        """A body begins."""
        for one in self._seen:
            one.stepped = False

    @property
    def sees_optimizers(self) -> bool:
        """Whether there is anything that steps."""
        return bool(self._seen)

    @property
    def is_clean(self) -> bool:
        """Whether no gradient waits to be stepped."""
        idle = [one for one in self._seen if not one.stepped]
        return not idle or (len(idle) < len(self._seen) and not any(one.waits() for one in idle))

    @property
    def hindrance(self) -> str:
        """Why a boundary is not clean."""
        idle = [one for one in self._seen if not one.stepped]
        if len(idle) == len(self._seen):
            return f"{' and '.join(one.name for one in idle)} did not step in the body just ended"
        return f"gradients wait in {' and '.join(one.name for one in idle if one.waits())}"

    def close(self) -> None:
        """Watch no more."""
        for one in self._seen:
            one.handle.remove()


class _Stepping:
    """One optimizer: whether it stepped in this body, and what gradients were there when it last did.

    They are taken down at every step of every optimizer, so in the fewest calls there can be.
    """

    def __init__(self, optimizer: Any, *, alone: bool) -> None:
        self._optimizer, self._alone = optimizer, alone
        self.name, self.stepped = type(optimizer).__name__, True
        self._known: list[weakref.ref[Any]] = []
        self._versions: list[int] = []
        self._take_down()
        self.handle = optimizer.register_step_post_hook(self._note)

    def _note(self, *_: object) -> None:
        self.stepped = True
        self._take_down()

    def _take_down(self) -> None:
        """Which gradients are there, and how often each was written to."""
        if not self._alone:  # else nobody will ask
            gradients = self._gradients()
            self._known, self._versions = list(map(weakref.ref, gradients)), list(map(_VERSION, gradients))

    def _gradients(self) -> list[Any]:
        """The gradients there are, in the order of their parameters."""
        groups = self._optimizer.param_groups
        parameters = groups[0]["params"] if len(groups) == 1 else chain.from_iterable(one["params"] for one in groups)
        return [one for one in map(_GRADIENT, parameters) if one is not None]

    def waits(self) -> bool:
        """Whether gradients came since the last step; those it left lying there wait for nothing."""
        pairs = zip((ref() for ref in self._known), self._versions, strict=True)
        known = {id(one): version for one, version in pairs if one is not None}
        return any(known.get(id(one)) != one._version for one in self._gradients())


def _optimizers_in(one: Any, depth: int) -> Iterator[Any]:
    """The optimizers that step, out of whatever holds or wraps them."""
    if "torch" not in sys.modules or depth == 0 or isinstance(one, _PLAIN):
        return
    from model_checkpoint.tree.arrays.torch_types import bare_optimizer

    if hasattr(optimizer := bare_optimizer(one), "register_step_post_hook"):
        yield optimizer
    elif isinstance(one, (Mapping, list, tuple)):
        for item in one.values() if isinstance(one, Mapping) else one:
            yield from _optimizers_in(item, depth - 1)


class Recorder(Protocol):
    """Who keeps the record of a run's checkpoints, and with it decides which of them stay."""

    def metadata(self, parts: Sequence[str], *, epoch: int | None = None) -> Mapping[str, Any]:
        """What the manifest is to remember, so that the record can be made anew."""
        ...

    def follow(self, job: SaveJob) -> None:
        """Record a checkpoint that is being saved, once it is durable."""
        ...

    def record(self, info: CheckpointInfo) -> None:
        """Record a checkpoint that is durable."""
        ...

    def finish(self) -> None:
        """Return when all that is durable is recorded."""
        ...


class Saves:
    """The saves of one run: in the background, lazily where optimizers can be held back for the copy.

    Optimizers that are not in the state itself, because it holds what their ``state_dict`` gave, are the ``guard``.
    With a ``coordinator`` all ranks save together, and rank 0 drops what no keeper claims. A ``recorder`` is told of
    every checkpoint, and drops the old ones itself.
    """

    def __init__(
        self,
        root: Root,
        *,
        every: int | None,
        lazy: bool,
        keep: Sequence[Keeper] = (),
        grace: float = 0.0,
        guard: Sequence[object] = (),
        coordinator: Coordinator | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._root, self._every, self._lazy, self._guard = root, every, lazy, guard
        self._ranks, self._recorder = coordinator, recorder
        drops = recorder is None and (coordinator is None or coordinator.rank == 0)
        self._keep, self._grace = tuple(keep) if drops else (), grace
        self._job: SaveJob | None = None
        self.stall, self._told = 0.0, False
        self.newest: int | None = None  # the step of the newest save

    def is_due(self, step: int) -> bool:
        """Whether it is time."""
        return self._every is not None and step - (self.newest or 0) >= self._every

    def tell_overdue(self, step: int, watch: StepWatch) -> None:
        """Say once that no boundary is clean enough to save at."""
        if self._told or self._every is None or step - (self.newest or 0) < 2 * self._every:
            return
        self._told = True
        log.warning(
            "%s: no save since step %d, although every=%d, because %s, and no checkpoint holds gradients that wait. "
            "Step every optimizer in the bodies whose ends are to be saved, or set its gradients to None there.",
            self._root, self.newest or 0, self._every, watch.hindrance,
        )  # fmt: skip

    def steps_left(self, step: int) -> int | None:
        """Bodies until the next save."""
        return None if self._every is None else max(0, self._every - (step - (self.newest or 0)))

    def start(self, state: Mapping[str, Any], *, step: int, metrics: Mapping[str, float], about: Any) -> SaveJob:
        """Save in the background; what went wrong with the one before is raised here."""
        self._settle()
        self._job = self._save(state, step=step, metrics=metrics, metadata=self._metadata(state, about))
        self.stall += self._job.stall
        self.newest = step
        if self._recorder is not None:
            self._recorder.follow(self._job)
        return self._job

    def _metadata(self, state: Mapping[str, Any], about: Any) -> dict[str, Any]:
        if self._recorder is None:
            return {"run": about}
        return {"run": about, **self._recorder.metadata(list(state), epoch=about["epoch"])}

    def _settle(self) -> None:
        """Learn how the one before ended; what spoilt a lazy copy is told, and the next is eager."""
        if self._job is None:
            return
        error = self._job.exception()
        if isinstance(error, StateChanged):
            self._lazy = False
            log.warning("%s; from now on the state is copied at once instead of during the next step", error)
        elif error is not None:
            raise error
        self._drop_old()

    def _drop_old(self) -> None:
        """Let go of what no keeper claims, now that the newest is durable; that this fails never ends a training."""
        if not self._keep:
            return
        try:
            prune(self._root, keep=self._keep, grace=self._grace)
        except WrongReference as error:
            log.info("%s", error)  # a metric that was not logged yet: all stay until it is
        except CheckpointException as error:
            log.warning("%s: old checkpoints stay, because they could not be dropped: %s", self._root, error)

    def _save(self, state: Mapping[str, Any], **options: Any) -> SaveJob:
        # the folder of a step that was saved, fallen back over and reached again is replaced
        options = {**options, "overwrite": True, "coordinator": self._ranks}
        if self._lazy:
            with suppress(LazyRefused):
                return save_async(self._root, state, lazy=True, guard=self._guard, **options)
            self._lazy = False
        return save_async(self._root, state, **options)

    def finish(self) -> None:
        """Return when all is durable and recorded, and no more is kept than was asked for."""
        self._settle()
        finish_saves(self._root)
        if self._recorder is not None:
            self._recorder.finish()

    def leave(
        self,
        notice: Preemption | None,
        state: Mapping[str, Any],
        *,
        step: int,
        metrics: Mapping[str, float],
        about: Any,
    ) -> None:
        """Save for the last time; alone in the time that is left, on many ranks also if another one got the notice."""
        _finish_quietly(self._root)
        done, self.newest = self.newest == step, step  # what else lies there was fallen back over
        saved: dict[str, Any] = {"step": step, "metrics": metrics, "metadata": self._metadata(state, about)}
        if self._ranks is None and notice is not None:
            info = notice.save(self._root, state, **saved, overwrite=not done)
        else:
            info = save(self._root, state, **saved, overwrite=True, coordinator=self._ranks)
        if self._recorder is not None:
            self._recorder.record(info)
            self._recorder.finish()


def listen(deadline: float) -> Preemption | None:
    """Take notice of SIGTERM and Ctrl-C; None where that cannot be done, as in another thread than the first.

    Workers that are forked meanwhile outlive both: the body that waits for them is to be finished.
    """
    try:
        notice = preemption(deadline=deadline, signals=(signal.SIGTERM, signal.SIGINT))
    except OptionInvalid as error:
        log.warning("signals are not heard, so a run that is ended loses what follows its newest save: %s", error)
        return None
    spare_workers(notice)
    return notice


def _finish_quietly(root: Root) -> None:
    """Wait for earlier saves; that one failed never keeps the last one from being made."""
    try:
        finish_saves(root)
    except CheckpointException as error:
        log.error("%s: an earlier save failed: %s", root, error)


def obey(notice: Preemption) -> NoReturn:
    """End the program as the signal asks."""
    end_by(notice.received or signal.SIGTERM)


def end_after(closing: FrameType, number: int) -> None:
    """End the program as this signal asks, once ``closing`` has returned.

    That is the frame of a loop that was left: what is raised while it is closed nobody hears.
    """
    before = signal.getsignal(number)

    def end(_: int, frame: FrameType | None) -> None:
        while frame is not None and frame is not closing:
            frame = frame.f_back
        if frame is closing:
            wait()
        else:
            signal.signal(number, before)
            end_by(number)

    def wait() -> None:
        main = threading.main_thread().ident or 0
        timer = threading.Timer(_SOON, signal.pthread_kill, (main, number))
        timer.daemon = True
        timer.start()

    signal.signal(number, end)
    wait()


def end_by(number: int) -> NoReturn:
    """End the program as this signal asks."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + signal.SIGTERM)
