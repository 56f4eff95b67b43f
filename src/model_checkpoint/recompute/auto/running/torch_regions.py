"""Torch regions: a schedule in force as regions of ``torch.utils.checkpoint``, which the compiler and FSDP understand.

Each stage is kept or is a region of its own: that is what can be said with a function per module. Nothing but the
``forward`` of a recomputed stage is patched, so hooks (those of ``fully_shard`` too) run around the region, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from model_checkpoint.recompute.auto.common.determinism import Determinism
from model_checkpoint.recompute.auto.common.errors import PlanMismatch, ValueChanged
from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics
from model_checkpoint.recompute.auto.planning.schedule import Region, Schedule, is_flat
from model_checkpoint.recompute.auto.running.call_state import check_unchanged
from model_checkpoint.recompute.auto.running.stage_call import Patch
from model_checkpoint.recompute.common.context import train_flags, train_flags_as
from model_checkpoint.recompute.common.recomputing import recomputing

Look = Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]


class _FirstRun:
    """What torch does not look after between the first run of a stage and the second."""

    __slots__ = ("buffers", "flags", "name", "parameters", "versions")

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name = name
        # asked of the module each time: fully_shard replaces parameters, and those from before must not be held
        self.parameters, self.flags = list(module.parameters()), train_flags([module])
        self.versions = [parameter._version for parameter in self.parameters]
        self.buffers = [(buffer, buffer._version) for buffer in module.buffers()]

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Run the body as the first run was: the same parameters or an error, the same train flags."""
        check_unchanged(self.name, self.parameters, self.versions)
        for buffer, version in self.buffers:
            if buffer._version != version:
                raise ValueChanged(
                    f"{self.name}: a buffer of shape {tuple(buffer.shape)} was changed since the first run, version "
                    f"{buffer._version}, expected {version}; the second would count twice. Plan the model in the mode "
                    "it is trained in, or take executor='native'."
                )
        with train_flags_as(self.flags):
            yield


class TorchRegions:
    """The stages of one model, by name; those that a schedule says are recomputed by torch's own resources."""

    overlap = 0  # nothing runs beside the main thread

    def __init__(
        self,
        model: nn.Module,
        stages: Sequence[tuple[str, nn.Module]],
        *,
        determinism: Determinism = Determinism.METADATA,
    ) -> None:
        self.model, self.stages = model, list(stages)
        self.statistics = RecomputeStatistics()
        self.on_start: Look | None = None
        self._compared = "none" if determinism is Determinism.OFF else "default"
        self._again: list[tuple[str, nn.Module]] = []
        self._patches: list[Patch] = []

    def use(self, schedule: Schedule) -> None:
        """Run by this schedule once installed.

        Raises:
            PlanMismatch: it has regions of several stages, or other modes than keeping all.
        """
        if not is_flat(schedule):
            raise PlanMismatch("plan: has nested or long regions, which executor='torch' cannot run. Plan with it.")
        self._again = [self.stages[node.start] for node in schedule if isinstance(node, Region)]

    def install(self) -> None:
        """Patch the recomputed stages, and the model where each call is looked at."""
        if self._patches:
            return
        for name, module in self._again:
            self._put(module, partial(self._region, name, module))
        if self.on_start is not None:
            self._put(self.model, partial(guarded_forward, self.on_start))

    def _put(self, module: nn.Module, call: Callable[..., Any]) -> None:
        patch = wrap_forward(module, call)
        patch.install()
        self._patches.append(patch)

    def remove(self) -> None:
        """Undo the patches, the last first."""
        for patch in reversed(self._patches):
            patch.remove()
        self._patches = []

    def __enter__(self) -> TorchRegions:
        self.install()
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def _region(self, name: str, module: nn.Module, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return plain(*args, **kwargs)
        if torch.compiler.is_compiling():  # the compiler knows the function, not what is done around it
            return checkpoint(plain, *args, use_reentrant=False, **kwargs)
        first = _FirstRun(name, module)
        return checkpoint(
            plain,
            *args,
            use_reentrant=False,
            context_fn=lambda: (nullcontext(), self._second_run(first)),
            determinism_check=self._compared,
            **kwargs,
        )

    @contextmanager
    def _second_run(self, first: _FirstRun) -> Iterator[None]:
        start = time.perf_counter()
        try:
            with first.repeated(), recomputing():
                yield
        finally:
            self.statistics.recomputed(first.name, time.perf_counter() - start)


def wrap_forward(module: nn.Module, call: Callable[..., Any]) -> Patch:
    """A patch of ``forward`` that calls ``call`` with the former forward and the arguments."""
    patch = Patch(module, call, name="forward")
    patch.call = partial(call, patch.plain)
    return patch


def guarded_forward(look: Look, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a forward with the keyword arguments that ``look`` makes of the given ones."""
    return plain(*args, **look(args, kwargs))
