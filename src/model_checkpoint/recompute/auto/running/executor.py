"""Executor: run a model stage by stage, opening and closing the regions of its schedule around them."""

from __future__ import annotations

import time
import weakref
from typing import Any

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from model_checkpoint.recompute.auto.common.arguments import flatten_call, leaves_of, rebuild_call
from model_checkpoint.recompute.auto.running.call_state import CallState
from model_checkpoint.recompute.auto.running.compiled_schedule import CompiledRegion, CompiledSchedule
from model_checkpoint.recompute.auto.running.kept_stage import run_kept
from model_checkpoint.recompute.auto.running.region_frame import RegionFrame
from model_checkpoint.recompute.auto.running.run_resources import RunResources
from model_checkpoint.recompute.auto.running.stage_call import StageCall
from model_checkpoint.recompute.auto.running.walking import TensorSink, local


class ScheduleWalk:
    """Runs stages one by one and opens and closes the regions around them; a ``shadow`` is a second run."""

    __slots__ = ("body", "busy", "latest", "offload_run", "previous", "resources", "shadow", "sink", "stack")

    def __init__(
        self, resources: RunResources, body: CompiledSchedule, *, sink: TensorSink, shadow: bool = False
    ) -> None:
        self.resources, self.body, self.sink, self.shadow = resources, body, sink, shadow
        self.offload_run = resources.new_run()
        self.stack: list[RegionFrame] = []
        self.latest = -1
        self.busy = False
        self.previous: weakref.ref[RegionFrame] | None = None

    def run(self, stage: StageCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one stage in its regions, or by its mode when it is in none."""
        step = self.body.steps[stage.index]
        if step.regions or self.stack:
            self._open(stage.index, step.regions)
        self.latest, self.busy, local.stage = stage.index, True, stage.name
        try:
            if self.stack:
                result = self._run_in_frames(stage, args, kwargs)
            else:
                save, offload_run = self.resources.save, self.offload_run
                result = run_kept(stage, args, kwargs, step=step, sink=self.sink, save=save, offload_run=offload_run)
        finally:
            self.busy = False
            if self.stack:
                self._close(stage.index)
        if self.offload_run is not None:
            self.offload_run.settle()
        return result

    def _run_in_frames(self, stage: StageCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, spec = flatten_call(args, kwargs)
        state = None if self.shadow else CallState(stage.surroundings)
        for frame in self.stack:
            frame.enter(stage, leaves, spec=spec, state=state)
        if stage.writes:
            args, kwargs = rebuild_call(self._protected(stage, leaves), spec)
        del leaves
        inner = self.stack[-1]
        begin = time.perf_counter()
        with saved_tensors_hooks(inner.pack, inner.unpack):
            result = stage.original(*args, **kwargs)
        if state is not None:
            state.seconds = time.perf_counter() - begin
            state.settle()
        outputs = leaves_of(result)
        for frame in self.stack:
            frame.leave(len(frame.calls) - 1, outputs)
        return result

    def _protected(self, stage: StageCall, leaves: list[Any]) -> list[Any]:
        """Copies of the arguments a stage writes into, where a frame holds them for the second run."""
        inner = self.stack[-1]
        return [
            leaf.clone() if n in stage.writes and isinstance(leaf, Tensor) and not inner.knows(leaf) else leaf
            for n, leaf in enumerate(leaves)
        ]

    def _open(self, index: int, wanted: tuple[CompiledRegion, ...]) -> None:
        """Open the regions around stage ``index``; a stage out of order starts new ones."""
        if index <= self.latest:
            self._pop_to(0)
        depth = 0
        if self.stack:
            while depth < min(len(self.stack), len(wanted)) and self.stack[depth].part is wanted[depth]:
                depth += 1
            self._pop_to(depth)
        for part in wanted[depth:]:
            around = self.stack[-1] if self.stack else self.sink
            frame = RegionFrame(self.resources, part, around, shadow=self.shadow, rerun=_rerun)
            if not self.stack and not self.shadow:
                frame.previous, self.previous = self.previous, weakref.ref(frame)
            self.stack.append(frame)

    def _close(self, index: int) -> None:
        """Close the regions that end at or before stage ``index``."""
        depth = len(self.stack)
        while depth and self.stack[depth - 1].part.stop <= index:
            depth -= 1
        self._pop_to(depth)

    def _pop_to(self, depth: int) -> None:
        for frame in self.stack[depth:]:
            frame.close()
        del self.stack[depth:]

    def finish(self) -> None:
        """Close what is still open when the run ends."""
        if self.stack:
            self._pop_to(0)
        if self.offload_run is not None:
            self.offload_run.finish()

    def abandon(self) -> None:
        """Close what is still open when the run has failed."""
        self._pop_to(0)
        if self.offload_run is not None:
            self.offload_run.abandon()


def _rerun(resources: RunResources, body: CompiledSchedule, sink: TensorSink) -> ScheduleWalk:
    return ScheduleWalk(resources, body, sink=sink, shadow=True)
