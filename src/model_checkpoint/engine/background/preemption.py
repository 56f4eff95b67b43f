"""Preemption: the scheduler gives notice by a signal; the loop saves at its next step boundary, in the time left.

The signal handler only sets a flag. If the measured bandwidth says that the whole state does not fit the time, the
declared parts are saved by priority as an incomplete emergency checkpoint, which nothing chooses unless it is named.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from model_checkpoint import forks, plan, tree
from model_checkpoint.engine.common.info import CheckpointInfo, path_of
from model_checkpoint.engine.jobs import inflight
from model_checkpoint.engine.root.listing import read_listed, to_info
from model_checkpoint.engine.writing import bandwidth
from model_checkpoint.engine.writing.request import SaveRequest, request_save
from model_checkpoint.engine.writing.save import commit_plan
from model_checkpoint.engine.writing.save_plan import plan_flat
from model_checkpoint.engine.writing.slabs import write_files
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.events import ignore
from model_checkpoint.state import Flat
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import Root, open_store
from model_checkpoint.tree.nodes.subset import subset

log = logging.getLogger("model_checkpoint.preemption")

_MARGIN = 0.7  # of the time left may be planned with; a medium is slower on some days

_active: weakref.WeakSet[Preemption] = weakref.WeakSet()


def preemption(
    *, deadline: float, signals: Sequence[signal.Signals] = (signal.SIGTERM,), parts: Sequence[str] = ()
) -> Preemption:
    """Take notice of a coming end: ``signals`` set a flag that :meth:`Preemption.should_save` shows.

    Args:
        deadline: Seconds between the signal and the end of the process, as the scheduler grants them.
        signals: What the scheduler sends. Handlers installed before are called too, but for the defaults.
        parts: What to save first if there is no time for all, as in ``load(parts=...)``, most precious first.

    Example:
        >>> with preemption(deadline=30.0, parts=["model", "optimizer"]) as notice:
        ...     notice.should_save(), notice.seconds_left()
        (False, 30.0)
    """
    return Preemption(deadline=deadline, signals=signals, parts=parts)


class Preemption:
    """Handlers for the signals of a scheduler, until ``close()`` or the end of the ``with`` block."""

    def __init__(self, *, deadline: float, signals: Sequence[signal.Signals], parts: Sequence[str]) -> None:
        if not deadline > 0:
            raise OptionInvalid(f"deadline must be more than 0 seconds, got {deadline!r}")
        self._parts = [parts] if isinstance(parts, str) else list(parts)
        self._deadline, self._pid, self._closed = deadline, os.getpid(), False
        self._received: float | None = None
        self._number: int | None = None
        self._before: dict[int, Any] = {}
        try:
            for number in dict.fromkeys([signals] if isinstance(signals, int) else signals):
                self._before[number] = signal.signal(number, self._on_signal)
        except (ValueError, OSError) as error:
            self.close()
            raise _not_installed(number, error) from error
        _active.add(self)

    def __enter__(self) -> Preemption:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Put the earlier handlers back, where ours is still in place."""
        self._closed = True
        for number in self._before:
            if signal.getsignal(number) == self._on_signal:
                before = self._earlier(number)
                signal.signal(number, signal.SIG_DFL if before is None else before)  # None: not set from Python
        _active.discard(self)

    def _earlier(self, number: int) -> Any:
        """The handler below ours, passing over notices that were closed before the ones above them."""
        before = self._before.get(number)
        while isinstance(owner := getattr(before, "__self__", None), Preemption) and owner._closed:
            before = owner._before.get(number)
        return before

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Set the flag; nothing else is safe in a signal handler."""
        before = self._earlier(number)
        if os.getpid() == self._pid:
            again = self._number == number
            if self._received is None:
                self._received, self._number = time.monotonic(), number
            if before is signal.default_int_handler and not again:
                return  # Python's own default for SIGINT would end the loop that is to save, as SIG_DFL would
        elif before == signal.SIG_DFL:  # a child forked behind Python's back: let it die as it would have
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if callable(before):
            before(number, frame)

    def should_save(self) -> bool:
        """Whether the signal has come; ask at every step boundary."""
        return self._received is not None

    @property
    def received(self) -> signal.Signals | None:
        """The signal that came first; a second Ctrl-C is not held back."""
        return None if self._number is None else signal.Signals(self._number)

    def seconds_left(self) -> float:
        """Seconds until the end of the process; all of the deadline before the signal."""
        return self._deadline if self._received is None else self._deadline - (time.monotonic() - self._received)

    def save(
        self,
        root: Root,
        state: Any,
        *,
        step: int | None = None,
        metrics: Mapping[str, float] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> CheckpointInfo:
        """Save all of ``state`` if there is time, else the declared parts that fit, at least the first.

        An incomplete checkpoint names the parts it lacks in ``left_out``. It is never the newest or the best one;
        load it by ``name=``, ``id=`` or ``step=`` with ``parts=[...]``. If ``step`` is already saved, that is it.
        Earlier background saves that failed never keep this one from being made; their failures are told afterwards.
        """
        order = request_save(step=step, name=None, metrics=metrics, metadata=metadata)
        store = open_store(root)
        lost = inflight.wait_over(store.url)
        try:
            if step is not None and (there := read_listed(store, order.name)) is not None:
                return to_info(store, there)
            return self._save_in_time(store, order, tree.flatten(state))
        finally:  # after the save, which is the last chance; the next save, finish_saves or the exit raises them too
            for job in lost:
                log.error("%s: an earlier background save failed: %s", job.where, job.failure())

    def _save_in_time(self, store: Store, order: SaveRequest, flat: Flat) -> CheckpointInfo:
        for part in unknown_parts(flat, self._parts):
            log.error("%s: parts: %r matches nothing in the state, so it is not saved first", store.url, part)
        budget = (bandwidth.measured(store.url) or bandwidth.probe(store)) * self.seconds_left() * _MARGIN
        kept, left_out = choose_parts(flat, self._parts, budget)
        replacing = False
        if left_out:
            name = order.attempt[:8] if order.step is None else f"{order.step:08d}"
            order = replace(order, name=f"emergency-{name}", left_out=left_out)
            replacing = store.has(order.name)
            log.warning("%s: no time for %s", path_of(store, order.name), ", ".join(left_out))
        planned = plan_flat(store, order, kept, replacing=replacing)
        return commit_plan(planned, lambda jobs: write_files(jobs, emit=ignore))


def choose_parts(flat: Flat, parts: Sequence[str], budget: float) -> tuple[Flat, tuple[str, ...]]:
    """Return what of ``flat`` fits ``budget`` bytes, part by part, and the parts left out.

    What belongs to no declared part comes last, as ``"the rest"``, but its values without bytes always stay.
    """
    sizes = {leaf.name: leaf.nbytes for leaf in flat.leaves}
    if not parts or sum(sizes.values()) <= budget:
        return flat, ()
    belongs = {name: next((p for p in parts if plan.matcher(p)(name)), None) for name in sizes}
    used, full, fits = 0, False, list[str | None]()
    for part in (*parts, None):
        size = sum(size for name, size in sizes.items() if belongs[name] == part)
        full = full or (used > 0 and used + size > budget)  # the first that has bytes is saved whatever the time
        if not full or not size:
            used += size
            fits.append(part)
    dropped = tuple(part or "the rest" for part in (*parts, None) if part not in fits)
    wanted, declared = plan.matcher([p for p in fits if p is not None]), plan.matcher(list(parts))
    rest_fits = None in fits

    def keep(name: str) -> bool:
        return wanted(name) or (not declared(name) and (rest_fits or name not in sizes))

    return subset(flat, keep), dropped


def unknown_parts(flat: Flat, parts: Sequence[str]) -> list[str]:
    """Declared parts that nothing in the state belongs to, be it misspelt or no longer there."""
    names = [leaf.name for leaf in flat.leaves]
    return [part for part in parts if not any(map(plan.matcher(part), names))]


def _not_installed(number: int, error: Exception) -> OptionInvalid:
    if threading.current_thread() is not threading.main_thread():
        return OptionInvalid(f"signal handlers can only be installed in the main thread: {error}")
    return OptionInvalid(f"signals: no handler can be installed for {number!r} ({error}). Nothing was installed.")


def _start_anew() -> None:
    """In a forked child, the notice is for the parent: put the earlier handlers back, and forget the signal."""
    for one in list(_active):
        one._received = one._number = None
        one.close()


forks.in_child(_start_anew)
