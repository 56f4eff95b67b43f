"""Kept stage: run a stage that is in no region, saving its tensors the way its mode says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from model_checkpoint.recompute.auto.running.compiled_schedule import StageStep
from model_checkpoint.recompute.auto.running.region_frame import ReplayRecorder
from model_checkpoint.recompute.auto.running.stage_call import StageCall
from model_checkpoint.recompute.auto.running.walking import TensorSink
from model_checkpoint.recompute.auto.saving.drop import DropMode, save_or_rebuild
from model_checkpoint.recompute.auto.saving.offload import OffloadRun
from model_checkpoint.recompute.auto.saving.saved import Saved

Save = Callable[[Tensor], Saved]


def run_kept(
    stage: StageCall,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    step: StageStep,
    sink: TensorSink,
    save: Save,
    offload_run: OffloadRun | None,
) -> Any:
    """Call the stage; what it saves goes where ``step.mode`` says, or to the region that runs again."""
    if step.mode == "full":
        if not step.resolves and not isinstance(sink, ReplayRecorder):
            return stage.original(*args, **kwargs)  # autograd keeps its tensors itself
        with _hooks(sink, save):
            return stage.original(*args, **kwargs)
    with ExitStack() as stack:
        if step.mode in ("drop", "drop+masks"):
            save = save_or_rebuild
            stack.enter_context(DropMode(masks=step.mode == "drop+masks"))
        elif offload_run is not None:
            moved = offload_run.stage(stage.name, step.mode, args=args, kwargs=kwargs, module=stage.module)
            save = stack.enter_context(moved)
        stack.enter_context(_hooks(sink, save))
        return stage.original(*args, **kwargs)


def _hooks(sink: TensorSink, save: Save) -> saved_tensors_hooks:
    """Hand what autograd saves to ``save``, through the recorder where a region runs again."""
    if isinstance(sink, ReplayRecorder):
        sink.save = save
        return saved_tensors_hooks(sink.pack, sink.unpack)
    return saved_tensors_hooks(save, _open_saved)


def _open_saved(packed: Saved) -> Tensor:
    return packed.open()
