"""Walking: what a walk through the stages is to the regions it opens, and which one this thread is on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from model_checkpoint.recompute.auto.running.compiled_schedule import CompiledSchedule
from model_checkpoint.recompute.auto.running.run_resources import RunResources
from model_checkpoint.recompute.auto.running.stage_call import StageCall
from model_checkpoint.recompute.auto.saving.saved import Saved


class TensorSink(Protocol):
    """Where tensors go that must survive until backward."""

    def pack(self, tensor: Tensor) -> Any:
        """Put a tensor away."""
        ...

    def unpack(self, packed: Any) -> Tensor:
        """Give it back."""
        ...


class HeldTensors:
    """The outermost sink: tensors are held, or rebuilt where a recipe is known."""

    def __init__(self, save: Callable[[Tensor], Saved]) -> None:
        self.pack = save

    def unpack(self, packed: Saved) -> Tensor:
        """Give a tensor back."""
        return packed.open()


class StageWalk(Protocol):
    """Whoever runs stages by a schedule, for the first or the second time."""

    resources: RunResources
    busy: bool
    latest: int

    def run(self, stage: StageCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one stage."""
        ...

    def finish(self) -> None:
        """The run has ended."""
        ...

    def abandon(self) -> None:
        """The run has failed."""
        ...


Rerun = Callable[[RunResources, CompiledSchedule, TensorSink], StageWalk]


class _ThreadWalk(threading.local):
    """What this thread is doing."""

    walk: StageWalk | None = None
    stage: str = ""


local = _ThreadWalk()
