"""Replay state: the process-wide state that replays share (random generators, train flags, module buffers).

Generators cannot be had per thread, so replays in several threads could disturb each other. Runs are nevertheless
let in side by side: the first finds its own generators, the others are its guests. Nobody sets a generator while a run
is in, since a number drawn between the look at a generator and its new state would go unseen. So each entry and exit
sees whether anyone has drawn since the last one: where somebody did while two were in, or where a guest was, the runs
concerned are marked ``tainted`` and their strategy repeats them alone. Functions that draw nothing never wait and never
repeat.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from model_checkpoint import forks
from model_checkpoint.recompute.common.context import RandomState


@dataclass(slots=True, eq=False)
class ReplayRun:
    """One function being replayed."""

    random: RandomState
    flags: Mapping[Any, bool] = field(default_factory=dict)
    alone: bool = False
    guest: bool = False  # the generators are those of another run
    tainted: bool = False  # numbers it drew may be another's


@dataclass(slots=True)
class _Hold:
    """A module in use by runs, and how it was found."""

    users: int
    training: bool
    buffers: dict[str, Any]  # its own, out of the way of the runs


class SharedReplayState:
    """Lets replays in and out, and leaves the process as the first of them found it."""

    def __init__(self) -> None:
        self._turn = forks.condition()
        self._active: list[ReplayRun] = []
        self._lone: ReplayRun | None = None
        self._world: RandomState | None = None
        self._expected: RandomState | None = None
        self._held: dict[Any, _Hold] = {}
        self._thread = threading.local()
        forks.in_child(self._begin_anew)

    @contextmanager
    def entered(self, run: ReplayRun) -> Iterator[None]:
        """Run the body with the state prepared; a run around it in this thread pauses meanwhile."""
        with self.left():
            self._join(run)
            stack = self._stack()
            stack.append(run)
            try:
                yield
            finally:
                stack.pop()
                self._leave(run)

    @contextmanager
    def left(self) -> Iterator[None]:
        """Leave the shared state for the body: whoever waits for another run must not stand in its way."""
        stack = self._stack()
        run = stack[-1] if stack else None
        if run is not None:
            self._leave(run)
        try:
            yield
        finally:
            if run is not None:
                self._join(run)

    def _begin_anew(self) -> None:
        """In a forked child only the runs of the thread that forked go on: nobody would ever end the others."""
        stack = self._stack()
        for run in [run for run in self._active if run not in stack[-1:]]:
            self._leave(run)

    def _stack(self) -> list[ReplayRun]:
        if not hasattr(self._thread, "runs"):
            self._thread.runs = []
        runs: list[ReplayRun] = self._thread.runs
        return runs

    def _join(self, run: ReplayRun) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._admits(run))
            self._look()
            run.guest = bool(self._active)
            if not run.guest:
                self._world = RandomState.capture()
                run.random.install()
                self._expected = run.random
            self._lone = run if run.alone else None
            self._active.append(run)
            for module, flag in run.flags.items():
                self._hold(module, flag)

    def _admits(self, run: ReplayRun) -> bool:
        if self._lone is not None or (run.alone and self._active):
            return False
        return not any(module in self._held and module.training != flag for module, flag in run.flags.items())

    def _leave(self, run: ReplayRun) -> None:
        with self._turn:
            if run not in self._active:  # an interrupt kept it from coming back in
                return
            self._look()
            if self._expected is not None and not run.guest:
                run.random = self._expected
            self._active.remove(run)
            if self._lone is run:
                self._lone = None
            for module in run.flags:
                self._let_go(module)
            if not self._active and self._world is not None:
                self._world.install()
                self._world = self._expected = None
            self._turn.notify_all()

    def _look(self) -> None:
        """Notice numbers drawn since the last entry or exit."""
        if not self._active:
            return
        present = RandomState.capture()
        if present != self._expected:
            self._expected = present
            for run in self._active:
                run.tainted = run.tainted or run.guest or len(self._active) > 1

    def _hold(self, module: Any, flag: bool) -> None:
        hold = self._held.get(module)
        if hold is None:
            # in training a forward changes buffers (BatchNorm, spectral norm); this one counted already, and the
            # graph of another may have saved them, so it works on copies
            buffers = dict(module.named_buffers(recurse=False)) if flag else {}
            module._buffers.update({name: buffer.detach().clone() for name, buffer in buffers.items()})
            hold = self._held[module] = _Hold(0, module.training, buffers)
        hold.users += 1
        module.training = flag

    def _let_go(self, module: Any) -> None:
        hold = self._held.get(module)
        if hold is None:  # a fork came while another thread was about to take it
            return
        hold.users -= 1
        if hold.users:
            return
        del self._held[module]
        module.training = hold.training
        module._buffers.update(hold.buffers)


REPLAY_STATE = SharedReplayState()
