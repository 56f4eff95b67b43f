"""Recomputation strategies: how a registered function is run again.

An engine asks its strategy once at registration what to remember, and hands that back on every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from model_checkpoint.recompute.common.context import RandomState, ThreadModes, modules_held_by, train_flags
from model_checkpoint.recompute.functions.replay_state import REPLAY_STATE, ReplayRun


@runtime_checkable
class RecomputationStrategy(Protocol):
    """How a function is run again; give an engine your own to change it."""

    def capture(self, function: Callable[[], Any], modules: Iterable[Any]) -> Any:
        """Take, at registration, what a later run will need."""
        ...

    def run(self, function: Callable[[], Any], captured: Any) -> Any:
        """Call ``function`` and return its result."""
        ...


class DirectCall:
    """Calls the function as things are; for functions that draw no numbers and know no modes.

    Example:
        >>> DirectCall().run(lambda: 3, None)
        3
    """

    def capture(self, function: Callable[[], Any], modules: Iterable[Any]) -> None:
        """Remember nothing."""

    def run(self, function: Callable[[], Any], captured: None) -> Any:
        """Call the function."""
        return function()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScene:
    """Everything around a function at its registration."""

    random: RandomState
    modes: ThreadModes
    flags: dict[Any, bool]


class ExactReplay:
    """Runs the function under the generators, autocast, grad mode and train flags of its registration.

    Afterwards generators, modes and flags are as before, and buffers of modules in training (BatchNorm statistics)
    are not counted twice. Modules are those given, and those the function visibly holds. Runs in several threads
    go side by side; one that drew random numbers while another was in is repeated alone, so its function is then
    called twice. Threads that a function starts itself and waits for must not recompute what draws numbers, nor what
    uses its modules with other train flags: they would wait for it in turn. Code elsewhere that
    draws from the same generators meanwhile disturbs a run.

    Example:
        >>> import random
        >>> replay = ExactReplay()
        >>> scene = replay.capture(random.random, ())
        >>> first = random.random()
        >>> replay.run(random.random, scene) == first
        True
    """

    def __init__(self) -> None:
        self._last: RandomState | None = None

    def capture(self, function: Callable[[], Any], modules: Iterable[Any]) -> CallScene:
        """Take generators, modes and train flags as they are now."""
        random = RandomState.capture()
        last = self._last
        if last is not None and random == last:
            random = last  # a state is 13 KB: layers that draw nothing share one
        self._last = random
        flags = train_flags([*modules, *modules_held_by(function)])
        return CallScene(random=random, modes=ThreadModes.capture(), flags=flags)

    def run(self, function: Callable[[], Any], captured: CallScene) -> Any:
        """Call the function in its scene."""
        value, run = _replay(function, captured)
        if run.tainted:
            value, _ = _replay(function, captured, alone=True)
        return value


def _replay(function: Callable[[], Any], scene: CallScene, *, alone: bool = False) -> tuple[Any, ReplayRun]:
    run = ReplayRun(scene.random, scene.flags, alone=alone)
    with scene.modes.applied(), REPLAY_STATE.entered(run):
        return function(), run
