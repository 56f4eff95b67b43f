"""Region frame: one region of one forward pass, which saves nothing and runs again when backward comes.

A :class:`RegionFrame` is one region of one forward pass. Autograd hands it every tensor it would save; the frame keeps
a numbered placeholder instead. The first one that backward opens makes the frame run its stages again and fill all
that are still alive. A frame saves its inputs through the frame around it, so regions nest. Nothing here refers to the
graph, so a frame dies with it.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from model_checkpoint.recompute.auto.common.arguments import Spec, leaves_of, rebuild_call
from model_checkpoint.recompute.auto.common.errors import RecomputeDiverged
from model_checkpoint.recompute.auto.running.call_state import CallState, generators_kept
from model_checkpoint.recompute.auto.running.compiled_schedule import CompiledRegion
from model_checkpoint.recompute.auto.running.prefetch import Pending
from model_checkpoint.recompute.auto.running.run_resources import RunResources
from model_checkpoint.recompute.auto.running.stage_call import StageCall
from model_checkpoint.recompute.auto.running.walking import Rerun, StageWalk, TensorSink, local
from model_checkpoint.recompute.auto.saving.saved import Saved
from model_checkpoint.recompute.common.recomputing import recomputing

_task = torch._C._current_graph_task_id
_WORTH_STOPPING = 3e-4  # seconds of a stage's forward


class _Stop(BaseException):  # not an Exception: a forward that swallows errors must not swallow this
    """Everything backward needs has been recomputed."""


class Placeholder:
    """Stands in for one dropped tensor; ``value`` is there between recomputation and use."""

    __slots__ = ("__weakref__", "index", "task", "value")

    def __init__(self, index: int) -> None:
        self.index = index
        self.task = -2
        self.value: Saved | None = None


class StageRecord:
    """One stage call inside a frame; ``slots`` say where each argument comes from."""

    __slots__ = ("slots", "spec", "stage", "state")

    def __init__(self, stage: StageCall, state: CallState, slots: list[Any], spec: Spec) -> None:
        self.stage, self.state, self.slots, self.spec = stage, state, slots, spec


class _KeptConstant:
    """An argument that is no tensor."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def is_parameter(tensor: Tensor) -> bool:
    """Whether a tensor is a parameter or a view of one: those are alive anyway."""
    # issubclass, not isinstance: Parameter's own instance check is slow, and this runs for every saved tensor
    return issubclass(type(tensor), nn.Parameter) or issubclass(type(tensor._base), nn.Parameter)


class RegionFrame:
    """One region of one forward pass."""

    __slots__ = (
        "__weakref__",
        "calls",
        "closed",
        "dropped",
        "holders",
        "inputs",
        "known",
        "lock",
        "parent",
        "part",
        "pending",
        "previous",
        "prints",
        "rerun",
        "resources",
        "shadow",
    )  # fmt: skip

    def __init__(
        self, resources: RunResources, part: CompiledRegion, parent: TensorSink, *, shadow: bool, rerun: Rerun
    ) -> None:
        self.resources, self.part, self.parent, self.shadow, self.rerun = resources, part, parent, shadow, rerun
        self.calls: list[StageRecord] = []
        self.inputs: list[tuple[Any, bool, bool]] = []  # packed, requires grad, needs a copy
        self.known: dict[int, tuple[weakref.ref[Tensor], Any]] = {}
        self.holders: list[weakref.ref[Placeholder]] = []
        self.prints: list[Any] = []
        self.closed = False
        self.dropped = 0
        self.pending: Pending | None = None
        self.previous: weakref.ref[RegionFrame] | None = None
        self.lock = threading.RLock()

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The layers of this region, for messages."""
        names = [call.stage.name for call in self.calls]
        return names[0] if len(set(names)) == 1 else f"{names[0]}..{names[-1]}"

    # -- first run --------------------------------------------------------------------------------------------------

    def enter(self, stage: StageCall, leaves: list[Any], *, spec: Spec, state: CallState | None) -> None:
        """Note a call: arguments from this region by place, others put away."""
        slots = [
            self._place(leaf, copied=number in stage.writes) if isinstance(leaf, Tensor) else _KeptConstant(leaf)
            for number, leaf in enumerate(leaves)
        ]
        if state is not None and not self.shadow:
            self.calls.append(StageRecord(stage, state, slots, spec))

    def _place(self, tensor: Tensor, *, copied: bool) -> Any:
        found = self.known.get(id(tensor))
        if found is not None and found[0]() is tensor:
            return found[1]
        place = len(self.inputs)
        self.inputs.append((self.parent.pack(tensor), tensor.requires_grad, copied))
        self.known[id(tensor)] = (weakref.ref(tensor), place)
        return place

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor was made by a stage of this region."""
        found = self.known.get(id(tensor))
        return found is not None and found[0]() is tensor and isinstance(found[1], tuple)

    def leave(self, number: int, outputs: list[Any]) -> None:
        """Note what a call returned, so that later calls can refer to it."""
        for position, leaf in enumerate(outputs):
            if isinstance(leaf, Tensor):
                self.known[id(leaf)] = (weakref.ref(leaf), (number, position))

    def pack(self, tensor: Tensor) -> Any:
        """Take a tensor autograd wants saved, and keep only its number."""
        if self.shadow:
            return None
        if type(tensor) is nn.Parameter and tensor.requires_grad:
            return tensor  # its version is checked with the others of the stage when the region runs again
        if is_parameter(tensor):
            return Saved(tensor)
        holder = Placeholder(len(self.holders))
        self.holders.append(weakref.ref(holder))
        if self.resources.fingerprint is not None:
            self.prints.append(self.resources.fingerprint(tensor))
        self.dropped += tensor.nbytes
        return holder

    def close(self) -> None:
        """No more calls will come."""
        self.closed = True
        self.known.clear()
        if self.calls and not self.shadow:
            self.resources.statistics.dropped(self.calls[0].stage.name, self.dropped)

    # -- second run -------------------------------------------------------------------------------------------------

    def unpack(self, packed: Any) -> Tensor:
        """Give a tensor to backward, running the region again if it is not there."""
        if type(packed) is nn.Parameter:
            return packed
        if type(packed) is Saved:
            return packed.open(self)
        task = _task()
        if self.pending is not None or packed.value is None or packed.task != task:
            self._refill(task)  # what the worker has filled is collected too: that starts it on the next region
        else:
            self.resources.statistics.hit(self.calls[0].stage.name)
        value = packed.value
        if value is None:
            raise RecomputeDiverged(
                f"{self.name}: saved tensor {packed.index} was not made again, {len(self.holders)} were saved before. "
                "The layer must run the same operations twice.",
                layer=self.name,
                tensor=packed.index,
            )
        packed.value = None
        opened: Tensor = value.open(self)
        return opened

    def _refill(self, task: int) -> None:
        """Have all living holders filled for backward pass ``task``, by the worker or here."""
        prefetcher = self.resources.prefetcher
        with self.lock:
            if self.pending is None or not self.pending.collect(self.calls[0].stage.name, task):
                self.recompute(task)
            self.pending = None
        if prefetcher is not None and self.previous is not None:
            prefetcher.start(self.previous(), task)

    @property
    def may_run_ahead(self) -> bool:
        """Whether backward will ask for it, and it touches nothing that backward may use at the same time."""
        needed = any(holder() is not None for holder in self.holders)
        return (
            needed
            and self.closed
            and self.part.ahead
            and not any(
                call.state.draws or call.stage.facts.collective or call.stage.facts.shared for call in self.calls
            )
            and not any(isinstance(packed, Saved) and packed.draws for packed, _, _ in self.inputs)
        )

    def recompute(self, task: int) -> None:
        """Run the stages of this region again and fill the holders."""
        if not self.closed:
            raise RecomputeDiverged(
                f"{self.name}: backward was called inside the forward of this region. "
                "Leave this layer out of the plan, or call autograd outside of it.",
                layer=self.name,
            )
        recorder = ReplayRecorder(self, task)
        walk = self.rerun(self.resources, self.part.body, recorder)
        outer, local.walk = local.walk, walk
        grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(True)
        try:
            with recomputing(), generators_kept([call.state for call in self.calls]), suppress(_Stop):
                self._run_again(walk, [self._open_input(entry) for entry in self.inputs])
            walk.finish()
        except BaseException:
            walk.abandon()
            recorder.forget()
            raise
        finally:
            torch._C._set_grad_enabled(grad)
            local.walk = outer
        recorder.finish()

    def _open_input(self, entry: tuple[Any, bool, bool]) -> Tensor:
        packed, requires_grad, copied = entry
        held = packed.open(self) if type(packed) is Saved else self.parent.unpack(packed)
        value = held.detach()
        if requires_grad:
            value.requires_grad_()
        return value.clone() if copied else value

    def _run_again(self, walk: StageWalk, values: list[Tensor | None]) -> None:
        made: dict[tuple[int, int], Tensor] = {}
        last = self._last_uses()
        for number, call in enumerate(self.calls):
            call.state.check()
            leaves = [_fetch(slot, values, made) for slot in call.slots]
            args, kwargs = rebuild_call(leaves, call.spec)
            for place in last[number]:
                if isinstance(place, tuple):
                    made.pop(place, None)
                else:
                    values[place] = None
            del leaves
            start = time.perf_counter()
            try:
                if call.state.is_plain():
                    result = walk.run(call.stage, args, kwargs)
                else:
                    with call.state.applied():
                        result = walk.run(call.stage, args, kwargs)
            finally:
                self.resources.statistics.recomputed(call.stage.name, time.perf_counter() - start)
            del args, kwargs
            if last[-1]:
                outputs = enumerate(leaves_of(result))
                made.update({(number, position): leaf for position, leaf in outputs if (number, position) in last[-1]})
                del outputs
            del result

    def _last_uses(self) -> list[Any]:
        """Per call the places it is the last to read; the final entry holds all places that are read."""
        if len(self.calls) == 1:
            return [range(len(self.inputs)), ()]
        final: dict[Any, int] = {}
        for number, call in enumerate(self.calls):
            final.update({slot: number for slot in call.slots if not isinstance(slot, _KeptConstant)})
        ends: list[Any] = [[] for _ in self.calls]
        for place, number in final.items():
            ends[number].append(place)
        return [*ends, set(final)]


def _fetch(slot: Any, values: list[Tensor | None], made: dict[tuple[int, int], Tensor]) -> Any:
    if isinstance(slot, _KeptConstant):
        return slot.value
    return made[slot] if isinstance(slot, tuple) else values[slot]


class ReplayRecorder:
    """Fills a frame's holders while its stages run again."""

    __slots__ = ("count", "early", "frame", "save", "stop", "task")

    def __init__(self, frame: RegionFrame, task: int) -> None:
        self.frame, self.task = frame, task
        self.count = 0
        self.save: Callable[[Tensor], Saved] = frame.resources.save
        living = [number for number, holder in enumerate(frame.holders) if holder() is not None]
        self.stop = living[-1] + 1 if living else 0
        final = frame.calls[-1]
        # to stop early costs an exception through C++, and would cut off the hooks of the last stage
        self.early = final.state.seconds > _WORTH_STOPPING and not any(
            module._forward_hooks for module in final.stage.surroundings.modules
        )

    def pack(self, tensor: Tensor) -> Any:
        """Put the next tensor in the next holder; stop the run when the last living one is filled."""
        if is_parameter(tensor):
            return None
        frame, number = self.frame, self.count
        if number >= len(frame.holders):
            self._diverge(number, f"more tensors are saved than the {len(frame.holders)} of the first run")
        if frame.resources.fingerprint is not None:
            self._compare(number, tensor)
        self.count += 1
        holder = frame.holders[number]()
        if holder is not None:
            holder.value, holder.task = self.save(tensor), self.task
        if self.count >= self.stop and self.early:
            raise _Stop
        return None

    def unpack(self, packed: Any) -> Tensor:
        """Refuse: the second run's graph is never walked."""
        raise RecomputeDiverged(f"{self.frame.name}: autograd was called inside the layer. Leave it out of the plan.")

    def finish(self) -> None:
        """Check that the second run made as many tensors as are needed."""
        if self.count < self.stop:
            self._diverge(self.count, f"only {self.count} tensors are saved, the first run saved {self.stop} or more")

    def forget(self) -> None:
        """Empty what was filled, after an error."""
        for reference in self.frame.holders:
            holder = reference()
            if holder is not None:
                holder.value = None

    def _compare(self, number: int, tensor: Tensor) -> None:
        fingerprint = self.frame.resources.fingerprint
        assert fingerprint is not None
        expected, got = self.frame.prints[number], fingerprint(tensor)
        if got != expected:
            self._diverge(number, f"got {got}, expected {expected}")

    def _diverge(self, number: int, what: str) -> None:
        name = local.stage or self.frame.name
        raise RecomputeDiverged(
            f"{name}: saved tensor {number} differs in the second run: {what}. The layer must compute the same twice; "
            "look for globals, unseeded generators or data-dependent branches in it.",
            layer=name,
            tensor=number,
        )
