"""Runtime: a model with a schedule in force: its layers call the executor instead of themselves.

Layers are patched at ``_call_impl``, so that their hooks run inside the region too. A copy or a pickle of a patched
model is a plain model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from model_checkpoint import forks
from model_checkpoint.recompute.auto.common.determinism import Determinism, fingerprint_of
from model_checkpoint.recompute.auto.common.errors import ModelRefused
from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics
from model_checkpoint.recompute.auto.planning.schedule import Schedule
from model_checkpoint.recompute.auto.running.compiled_schedule import CompiledSchedule, compile_schedule, modes_in
from model_checkpoint.recompute.auto.running.executor import ScheduleWalk
from model_checkpoint.recompute.auto.running.prefetch import Prefetcher
from model_checkpoint.recompute.auto.running.run_resources import RunResources
from model_checkpoint.recompute.auto.running.stage_call import Patch, StageCall, plain_call
from model_checkpoint.recompute.auto.running.walking import HeldTensors, local
from model_checkpoint.recompute.auto.saving.drop import save_or_rebuild
from model_checkpoint.recompute.auto.saving.offload import Offloader
from model_checkpoint.recompute.auto.saving.saved import Saved


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
        self.resources = RunResources(
            statistics=self.statistics,
            fingerprint=fingerprint_of(determinism),
            prefetcher=Prefetcher(self.statistics) if prefetch else None,
            offloader=offloader,
        )
        self.body = CompiledSchedule(steps={})
        self.on_start: Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]] | None = None
        self._by_module: dict[int, list[StageCall]] = {}
        for stage in self.stages:
            self._by_module.setdefault(id(stage.module), []).append(stage)
        self._patches: list[Patch] = []
        self._kinds: list[tuple[str, nn.Module, type]] = []
        self._lock = forks.lock()

    def use(self, schedule: Schedule) -> None:
        """Run by this schedule from the next forward pass on."""
        self.body = compile_schedule(schedule)
        self.resources.save = save_or_rebuild if modes_in(schedule) & {"drop", "drop+masks"} else Saved

    def install(self) -> None:
        """Patch the model and its stages."""
        with self._lock:
            if self._patches:
                return
            self._kinds = [(name, module, type(module)) for name, module in self.model.named_modules()]
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
            self.resources.close()

    def __enter__(self) -> Runtime:
        self.install()
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    @property
    def overlap(self) -> int:
        """Bytes that a region run ahead needs on top of what the tracker saw on one thread."""
        return self.resources.prefetcher.overlap if self.resources.prefetcher is not None else 0

    def _call_model(self, *args: Any, **kwargs: Any) -> Any:
        """One forward pass; without gradients, or inside another pass, the model is as it was."""
        if torch.compiler.is_compiling():
            _refuse_compiler(type(self.model).__name__)
        original = plain_call(self.model)
        if local.walk is None:
            self.resources.drain()
        if not torch.is_grad_enabled() or local.walk is not None:
            return original(*args, **kwargs)
        self._refuse_sharded()
        if self.on_start is not None:
            kwargs = self.on_start(args, kwargs)
        walk = local.walk = ScheduleWalk(self.resources, self.body, sink=HeldTensors(self.resources.save))
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

    def _refuse_sharded(self) -> None:
        """``fully_shard`` makes a module one of another class, whose hooks must not run inside a region."""
        for name, module, kind in self._kinds:
            if type(module) is not kind:
                raise ModelRefused(
                    f"{name or kind.__name__}: sharded by fully_shard after auto_checkpoint ({kind.__name__} is now "
                    f"{type(module).__name__}). Write auto_checkpoint(model, ..., executor='torch') before fully_shard."
                )

    def _call_stage(self, key: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        stages = self._by_module[key]
        if torch.compiler.is_compiling():
            _refuse_compiler(stages[0].name)
        walk = local.walk
        if walk is None or walk.busy or walk.resources is not self.resources or not torch.is_grad_enabled():
            return stages[0].original(*args, **kwargs)
        # a module used twice is two stages: the next one in order that we have not passed
        stage = stages[0]
        if len(stages) > 1:
            stage = next((stage for stage in stages if stage.index > walk.latest), stage)
        return walk.run(stage, args, kwargs)


def _raise_refused(name: str) -> None:
    raise ModelRefused(
        f"{name}: compiled by torch.compile after auto_checkpoint, whose own regions the compiler cannot see. "
        "Write torch.compile(auto_checkpoint(model, ..., executor='torch'))."
    )


# where the compiler would trace through the bookkeeping it hands back to Python, which raises
_refuse_compiler: Callable[[str], None] = torch.compiler.disable(  # type: ignore[no-untyped-call]
    _raise_refused, reason="it runs by auto_checkpoint; plan with executor='torch' to compile it"
)
