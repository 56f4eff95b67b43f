"""Runtime: a model with a schedule in force: its layers call the executor instead of themselves.

Layers are patched at ``_call_impl``, so that their hooks run inside the region too. A copy or a pickle of a patched
model is a plain model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from model_checkpoint.recompute.auto.common.determinism import Determinism, fingerprint_of
from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics
from model_checkpoint.recompute.auto.planning.schedule import Schedule
from model_checkpoint.recompute.auto.running.call_state import ModuleContext
from model_checkpoint.recompute.auto.running.compiled_schedule import (
    CompiledSchedule,
    StageStep,
    compile_schedule,
    modes_in,
)
from model_checkpoint.recompute.auto.running.drop import DropMode, save_or_rebuild
from model_checkpoint.recompute.auto.running.executor import ScheduleWalk
from model_checkpoint.recompute.auto.running.offload import Offloader, OffloadRun
from model_checkpoint.recompute.auto.running.prefetch import Prefetcher
from model_checkpoint.recompute.auto.running.region_frame import HeldTensors, ReplayRecorder, TensorSink, local
from model_checkpoint.recompute.auto.running.saved import Saved


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFacts:
    """What a stage does besides computing, found by running it once."""

    name: str
    linked: bool = True  # the next stage takes its output directly
    draws_python: bool = False  # draws from Python's or NumPy's generator
    draws: bool = False  # draws from torch's generator
    writes: tuple[int, ...] = ()  # tensor arguments it writes into
    buffers: tuple[str, ...] = ()  # buffers it changes
    collective: bool = False
    shared: bool = False  # its module is used by another stage too

    @property
    def quiet(self) -> bool:
        """Whether it touches nothing that belongs to the whole process, so that a worker may run it again."""
        return not (self.draws or self.draws_python or self.collective or self.shared)


class StageCall:
    """One stage of the model: its module, and the call that was there before the patch."""

    __slots__ = ("facts", "index", "module", "name", "original", "surroundings", "writes")

    def __init__(self, index: int, facts: StageFacts, module: nn.Module) -> None:
        self.index, self.facts, self.module = index, facts, module
        self.name = facts.name
        self.writes = frozenset(facts.writes)
        self.original = plain_call(module)
        self.surroundings = ModuleContext(facts.name, module, buffers=facts.buffers, draws_python=facts.draws_python)


def plain_call(module: nn.Module) -> Callable[..., Any]:
    """The unpatched call of a module, hooks included."""
    return MethodType(type(module)._call_impl, module)


class Patch:
    """Stands in for ``_call_impl`` of one module; a copy or pickle of it is the plain call."""

    def __init__(self, module: nn.Module, call: Callable[..., Any]) -> None:
        self.module, self.call = module, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call whatever stands in."""
        return self.call(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return plain_call, (self.module,)

    def install(self) -> None:
        """Take the module's place."""
        self.module.__dict__["_call_impl"] = self

    def remove(self) -> None:
        """Give the place back."""
        if self.module.__dict__.get("_call_impl") is self:
            del self.module.__dict__["_call_impl"]


class Runtime:
    """The stages of one model and the schedule they run by; ``with runtime:`` or ``install`` puts it in force."""

    def __init__(
        self,
        model: nn.Module,
        stages: Sequence[StageCall],
        *,
        determinism: Determinism = Determinism.METADATA,
        prefetch: bool = False,
        offloader: Offloader | None = None,
    ) -> None:
        self.model, self.stages = model, list(stages)
        self.statistics = RecomputeStatistics()
        self.fingerprint = fingerprint_of(determinism)
        self.prefetcher = Prefetcher(self.statistics) if prefetch else None
        self.offloader = offloader
        self.save: Callable[[Tensor], Saved] = Saved
        self.body = CompiledSchedule(steps={})
        self.on_start: Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]] | None = None
        self._by_module: dict[int, list[StageCall]] = {}
        for stage in self.stages:
            self._by_module.setdefault(id(stage.module), []).append(stage)
        self._patches: list[Patch] = []
        self._lock = threading.Lock()

    def use(self, schedule: Schedule) -> None:
        """Run by this schedule from the next forward pass on."""
        self.body = compile_schedule(schedule)
        self.save = save_or_rebuild if modes_in(schedule) & {"drop", "drop+masks"} else Saved

    def install(self) -> None:
        """Patch the model and its stages."""
        with self._lock:
            if self._patches:
                return
            modules = {id(stage.module): stage.module for stage in self.stages}
            self._patches = [
                Patch(module, lambda *args, _id=key, **kwargs: self._call_stage(_id, args, kwargs))
                for key, module in modules.items()
                if module is not self.model
            ]
            self._patches.append(Patch(self.model, self._call_model))
            for patch in self._patches:
                patch.install()

    def remove(self) -> None:
        """Undo the patch."""
        with self._lock:
            for patch in self._patches:
                patch.remove()
            self._patches = []
            if self.prefetcher is not None:
                self.prefetcher.close()
            if self.offloader is not None:
                self.offloader.close()

    def __enter__(self) -> Runtime:
        self.install()
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def walk(self, body: CompiledSchedule, *, sink: TensorSink, shadow: bool) -> ScheduleWalk:
        """Begin to run stages by ``body``."""
        return ScheduleWalk(self, body, sink=sink, shadow=shadow)

    def _call_model(self, *args: Any, **kwargs: Any) -> Any:
        """One forward pass; without gradients, or inside another pass, the model is as it was."""
        original = plain_call(self.model)
        if local.walk is None:
            self._drain()
        if not torch.is_grad_enabled() or local.walk is not None or local.recomputing:
            return original(*args, **kwargs)
        if self.on_start is not None:
            kwargs = self.on_start(args, kwargs)
        walk = local.walk = self.walk(self.body, sink=HeldTensors(self.save), shadow=False)
        try:
            single = self._by_module.get(id(self.model))
            result = walk.run(single[0], args, kwargs) if single else original(*args, **kwargs)
            walk.finish()
            return result
        except BaseException:
            walk.abandon()
            raise
        finally:
            local.walk = None

    def _drain(self) -> None:
        """End what a former backward left under way: a new forward pass must find the modules as they are."""
        if self.prefetcher is not None:
            self.prefetcher.drain()
        if self.offloader is not None:
            self.offloader.drain()

    def _call_stage(self, key: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        stages = self._by_module[key]
        walk = local.walk
        if walk is None or walk.busy or walk.runtime is not self or not torch.is_grad_enabled():
            return stages[0].original(*args, **kwargs)
        # a module used twice is two stages: the next one in order that we have not passed
        stage = next((stage for stage in stages if stage.index > walk.latest), stages[0])
        return walk.run(stage, args, kwargs)

    def convoy(self, *, background: bool = True) -> OffloadRun | None:
        """What carries tensors away for one run through the stages, if anything does."""
        return self.offloader.convoy(self.statistics, background=background) if self.offloader is not None else None

    def run_kept(
        self,
        stage: StageCall,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        sink: TensorSink,
        step: StageStep,
        convoy: OffloadRun | None,
    ) -> Any:
        """Run a stage that is in no region, saving its tensors the way its mode says."""
        if step.mode == "full":
            return self._run_full(stage, args, kwargs, sink=sink, resolves=step.resolves)
        with ExitStack() as stack:
            save = self.save
            if step.mode in ("drop", "drop+masks"):
                save = save_or_rebuild
                stack.enter_context(DropMode(masks=step.mode == "drop+masks"))
            elif convoy is not None:
                moved = convoy.stage(stage.name, step.mode, args=args, kwargs=kwargs, module=stage.module)
                save = stack.enter_context(moved)
            if isinstance(sink, ReplayRecorder):
                sink.save = save
                stack.enter_context(saved_tensors_hooks(sink.pack, sink.unpack))
            else:
                stack.enter_context(saved_tensors_hooks(save, _open_saved))
            return stage.original(*args, **kwargs)

    def _run_full(
        self, stage: StageCall, args: tuple[Any, ...], kwargs: dict[str, Any], *, sink: TensorSink, resolves: bool
    ) -> Any:
        """Run a stage that keeps all its tensors."""
        if isinstance(sink, ReplayRecorder):
            sink.save = self.save
            with saved_tensors_hooks(sink.pack, sink.unpack):
                return stage.original(*args, **kwargs)
        if not resolves:
            return stage.original(*args, **kwargs)
        with saved_tensors_hooks(self.save, _open_saved):
            return stage.original(*args, **kwargs)


def _open_saved(packed: Saved) -> Tensor:
    return packed.open()
