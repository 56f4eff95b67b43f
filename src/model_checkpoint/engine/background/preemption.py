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
from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.background.preempted_ranks import least_left, save_all_ranks
from model_checkpoint.engine.common.info import CheckpointInfo, path_of
from model_checkpoint.engine.jobs import inflight
from model_checkpoint.engine.ranks.single_process import refuse_shards
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

_REST = "the rest"
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
        self._passed_on = False
        self._seen: set[int] = set()
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

    @property
    def is_closed(self) -> bool:
        """Whether signals are heard no longer."""
        return self._closed

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
            again = number in self._seen
            self._seen.add(number)
            if self._received is None:
                self._received, self._number = time.monotonic(), number
            if before is signal.default_int_handler and not again:
                return  # Python's own default for SIGINT would end the loop that is to save, as SIG_DFL would
        elif before == signal.SIG_DFL:  # a child forked behind Python's back: let it die as it would have
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if callable(before):
            self._passed_on = True
            before(number, frame)

    def should_save(self, coordinator: Coordinator | None = None) -> bool:
        """Whether the signal has come; ask at every step boundary.

        With ``coordinator`` every rank asks at the same boundary, and all are told if it has come to any of them: else
        one would save while the others wait for it in the next step. That takes a message to rank 0 and back.
        """
        if coordinator is not None and coordinator.world_size > 1:
            left = least_left(coordinator, None if self._received is None else self.seconds_left())
            if left is None:
                return False  # also if it came here meanwhile: then all hear of it at the next boundary
            self._received = time.monotonic() - (self._deadline - left)
        return self._received is not None

    @property
    def received(self) -> signal.Signals | None:
        """The signal that came first; a second Ctrl-C is not held back, whatever came before it."""
        return None if self._number is None else signal.Signals(self._number)

    @property
    def held_back(self) -> signal.Signals | None:
        """The signal that came first, if nobody else heard of it: it is for whoever asks to obey it."""
        return None if self._passed_on else self.received

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
        coordinator: Coordinator | None = None,
        overwrite: bool = False,
    ) -> CheckpointInfo:
        """Save all of ``state`` if there is time, else the declared parts that fit, at least the first.

        An incomplete checkpoint names the parts it lacks in ``left_out``. It is never the newest or the best one;
        load it by ``name=``, ``id=`` or ``step=`` with ``parts=[...]``. If ``step`` is already saved, that is it,
        unless ``overwrite`` says that it is not as it should be.
        Earlier background saves that failed never keep this one from being made; their failures are told afterwards.
        With ``coordinator`` every rank makes this call (see :meth:`should_save`); what one has no time for, all leave
        out.
        """
        order = request_save(step=step, name=None, metrics=metrics, metadata=metadata)
        store = open_store(root)
        lost = inflight.wait_over(store.url)
        try:
            if coordinator is not None:
                return self._save_with_others(store, order, state, coordinator)
            if step is not None and not overwrite and (there := read_listed(store, order.name)) is not None:
                return to_info(store, there)
            return self._save_in_time(store, order, tree.flatten(state), overwrite=overwrite)
        finally:  # after the save, which is the last chance; the next save, finish_saves or the exit raises them too
            for job in lost:
                log.error("%s: an earlier background save failed: %s", job.where, job.failure())

    def _save_in_time(self, store: Store, order: SaveRequest, flat: Flat, *, overwrite: bool) -> CheckpointInfo:
        refuse_shards(flat, path_of(store, order.name))
        kept, left_out = choose_parts(flat, self._parts, self._budget(store, flat))
        order = _renamed(store, order, left_out)
        replacing = (overwrite or bool(left_out)) and store.has(order.name)
        planned = plan_flat(store, order, kept, replacing=replacing)
        return commit_plan(planned, lambda jobs: write_files(jobs, emit=ignore))[0]

    def _save_with_others(
        self, store: Store, order: SaveRequest, state: Any, coordinator: Coordinator
    ) -> CheckpointInfo:
        return save_all_ranks(
            store,
            order,
            state,
            coordinator,
            left_out=lambda flat, sizes: left_out_of(sizes, self._parts, self._budget(store, flat)),
            reduce=lambda flat, dropped: without(flat, self._parts, dropped),
            rename=lambda asked, dropped: _renamed(store, asked, tuple(dropped)),
        )

    def _budget(self, store: Store, flat: Flat) -> float:
        """Bytes that this process can bring to the medium in the time left."""
        for part in unknown_parts(flat, self._parts):
            log.error("%s: parts: %r matches nothing in the state, so it is not saved first", store.url, part)
        return (bandwidth.measured(store.url) or bandwidth.probe(store)) * self.seconds_left() * _MARGIN


def _renamed(store: Store, order: SaveRequest, left_out: tuple[str, ...]) -> SaveRequest:
    """A save that lacks parts must not take the place of a whole one."""
    if not left_out:
        return order
    name = order.attempt[:8] if order.step is None else f"{order.step:08d}"
    order = replace(order, name=f"emergency-{name}", left_out=left_out)
    log.warning("%s: no time for %s", path_of(store, order.name), ", ".join(left_out))
    return order


def choose_parts(flat: Flat, parts: Sequence[str], budget: float) -> tuple[Flat, tuple[str, ...]]:
    """Return what of ``flat`` fits ``budget`` bytes, part by part, and the parts left out.

    What belongs to no declared part comes last, as ``"the rest"``, but its values without bytes always stay.
    """
    dropped = left_out_of({leaf.name: leaf.nbytes for leaf in flat.leaves}, parts, budget)
    return without(flat, parts, dropped), dropped


def left_out_of(sizes: Mapping[str, int], parts: Sequence[str], budget: float) -> tuple[str, ...]:
    """The parts that do not fit ``budget`` bytes, by the bytes of each leaf.

    Example:
        >>> left_out_of({"model.w": 4, "optimizer.m": 8, "x": 1}, ["model", "optimizer"], 6)
        ('optimizer', 'the rest')
    """
    if not parts or sum(sizes.values()) <= budget:
        return ()
    belongs = {name: next((p for p in parts if plan.matcher(p)(name)), None) for name in sizes}
    used, full, fits = 0, False, list[str | None]()
    for part in (*parts, None):
        size = sum(size for name, size in sizes.items() if belongs[name] == part)
        full = full or (used > 0 and used + size > budget)  # the first that has bytes is saved whatever the time
        if not full or not size:
            used += size
            fits.append(part)
    return tuple(part or _REST for part in (*parts, None) if part not in fits)


def without(flat: Flat, parts: Sequence[str], dropped: Sequence[str]) -> Flat:
    """What is left of ``flat`` without the parts that were dropped."""
    if not dropped:
        return flat
    arrays = {leaf.name for leaf in flat.leaves}
    wanted, declared = plan.matcher([p for p in parts if p not in dropped]), plan.matcher(list(parts))

    def keep(name: str) -> bool:
        return wanted(name) or (not declared(name) and (_REST not in dropped or name not in arrays))

    return subset(flat, keep)


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
        one._seen.clear()
        one.close()


forks.in_child(_start_anew)
