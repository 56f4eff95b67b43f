"""Boundary: at which boundaries between two bodies a run may save, saves, or leaves.

Between two bodies, never inside one: what follows a save in a body would be lost. And only where an optimizer stepped
in the body just ended, else gradients are being accumulated that no checkpoint holds.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from model_checkpoint.checkpoint.retention.lineup import Keeper
from model_checkpoint.checkpoint.retention.prune import prune
from model_checkpoint.engine.background.preemption import Preemption, preemption
from model_checkpoint.engine.background.save_async import finish_saves, save_async
from model_checkpoint.engine.jobs.job import SaveJob
from model_checkpoint.errors import CheckpointException, LazyRefused, OptionInvalid, StateChanged, WrongReference
from model_checkpoint.storage.locate import Root

log = logging.getLogger("model_checkpoint.run")


class StepWatch:
    """Sees whether any of the optimizers stepped since it was last asked.

    Example:
        >>> StepWatch([]).is_clean  # where nothing steps, every boundary is a good one
        True
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        self._handles = [handle for one in objects if (handle := self._watch(one)) is not None]
        self._stepped = True

    def _watch(self, one: Any) -> Any:
        if "torch" not in sys.modules:
            return None
        from model_checkpoint.tree.arrays.torch_types import bare_optimizer

        optimizer = bare_optimizer(one)
        register = getattr(optimizer, "register_step_post_hook", None)
        return None if register is None else register(self._note)

    def _note(self, *_: object) -> None:
        self._stepped = True

    def begin_body(self) -> None:
        """A body begins."""
        self._stepped = False

    @property
    def sees_optimizers(self) -> bool:
        """Whether there is anything that steps."""
        return bool(self._handles)

    @property
    def is_clean(self) -> bool:
        """Whether no gradient waits to be stepped."""
        return self._stepped or not self._handles

    def close(self) -> None:
        """Watch no more."""
        for handle in self._handles:
            handle.remove()


class Saves:
    """The saves of one run: in the background, lazily where optimizers can be held back for the copy.

    Optimizers that are not in the state itself, because it holds what their ``state_dict`` gave, are the ``guard``.
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
    ) -> None:
        self._root, self._every, self._lazy, self._guard = root, every, lazy, guard
        self._keep, self._grace = tuple(keep), grace
        self._job: SaveJob | None = None
        self.stall = 0.0
        self.newest: int | None = None  # the step of the newest save

    def is_due(self, step: int) -> bool:
        """Whether it is time."""
        return self._every is not None and step - (self.newest or 0) >= self._every

    def steps_left(self, step: int) -> int | None:
        """Bodies until the next save."""
        return None if self._every is None else max(0, self._every - (step - (self.newest or 0)))

    def start(self, state: Mapping[str, Any], *, step: int, metrics: Mapping[str, float], about: Any) -> SaveJob:
        """Save in the background; what went wrong with the one before is raised here."""
        self._settle()
        self._job = self._save(state, step=step, metrics=metrics, metadata={"run": about})
        self.stall += self._job.stall
        self.newest = step
        return self._job

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
        if self._lazy:
            with suppress(LazyRefused):
                return save_async(self._root, state, overwrite=True, lazy=True, guard=self._guard, **options)
            self._lazy = False
        return save_async(self._root, state, overwrite=True, **options)

    def finish(self) -> None:
        """Return when all is durable, and no more is kept than was asked for."""
        self._settle()
        finish_saves(self._root)


def listen(deadline: float) -> Preemption | None:
    """Take notice of SIGTERM and Ctrl-C; None where that cannot be done, as in another thread than the first."""
    try:
        return preemption(deadline=deadline, signals=(signal.SIGTERM, signal.SIGINT))
    except OptionInvalid as error:
        log.warning("signals are not heard, so a run that is ended loses what follows its newest save: %s", error)
        return None


def leave(
    notice: Preemption, root: Root, state: Mapping[str, Any], *, step: int, metrics: Mapping[str, float]
) -> NoReturn:
    """Save for the last time, and end the program as the signal asks: quietly it would go on as if it had trained."""
    try:
        finish_saves(root)
    except CheckpointException as error:
        log.error("%s: an earlier save failed: %s", root, error)
    notice.save(root, state, step=step, metrics=metrics)
    obey(notice)


def obey(notice: Preemption) -> NoReturn:
    """End the program as the signal asks."""
    if notice.received is signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + signal.SIGTERM)
