"""Profile: measure what each stage costs in seconds and bytes, and write it down as a chain for the planner.

Stages are measured on the spot during one forward pass that saves nothing, so profiling needs the memory of one stage.
Stages of equal structure share one measurement: timer noise between equal layers makes foolish plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from model_checkpoint.recompute.auto.common.arguments import flatten_call, leaves_of, rebuild_call
from model_checkpoint.recompute.auto.common.clock import ticks
from model_checkpoint.recompute.auto.common.peak import PeakTracker, excluded_tensors
from model_checkpoint.recompute.auto.measuring.sample import Sample
from model_checkpoint.recompute.auto.measuring.stages import intercepted, nothing_saved
from model_checkpoint.recompute.auto.measuring.survey import StageObservation, StepSurvey
from model_checkpoint.recompute.auto.planning.planner import Chain, Mode, Stage, lone_bytes
from model_checkpoint.recompute.auto.running.compiled_schedule import StageStep
from model_checkpoint.recompute.auto.running.kept_stage import run_kept
from model_checkpoint.recompute.auto.running.run_resources import RunResources
from model_checkpoint.recompute.auto.running.stage_call import StageCall
from model_checkpoint.recompute.auto.running.walking import HeldTensors
from model_checkpoint.recompute.auto.saving.drop import recipe_of, save_or_rebuild
from model_checkpoint.recompute.auto.saving.offload_groups import OffloadGroup

_REGION_SECONDS = 6e-5
_ROUNDS = 5
_GAIN = 0.98  # a mode that keeps more than this share of the bytes is not worth timing


@dataclass(slots=True, kw_only=True)
class _Bytes:
    """Sizes of one run of one mode."""

    saved: int
    alone: int
    forward_peak: int
    backward_peak: int
    frees_output: bool
    moved: int = 0
    fetched: int = 0


@dataclass(slots=True, kw_only=True)
class _Seconds:
    """The shortest times seen of one mode."""

    forward: float = float("inf")
    backward: float = float("inf")
    rebuild: float = float("inf")
    write: float = float("inf")
    read: float = float("inf")

    def improve(self, other: _Seconds) -> None:
        """Take over what the other did quicker."""
        for name in self.__slots__:
            setattr(self, name, min(getattr(self, name), getattr(other, name)))


def profile_chain(
    sample: Sample, stages: Sequence[StageCall], survey: StepSurvey, *, resources: RunResources, modes: Sequence[str]
) -> Chain:
    """Measure every stage and return the chain; call it inside ``sample.untouched()``."""
    profiler = _Profiler(sample.model, stages, survey, resources=resources, modes=modes)
    with intercepted([stage.module for stage in stages], profiler.call):
        sample.forward()
    costs = [_with_glue(stage, survey.marks, n) for n, stage in enumerate(profiler.costs)]
    return Chain(stages=(*costs, _tail(survey)), region_cost=_REGION_SECONDS)


def _with_glue(stage: Stage, marks: list[StageObservation], number: int) -> Stage:
    """Charge what is saved between two stages to the first of them."""
    glue = max(marks[number + 1].begin - marks[number].end, 0) if number + 1 < len(marks) else 0
    modes = tuple(replace(mode, saved=mode.saved + glue, alone=lone_bytes(mode) + glue) for mode in stage.modes)
    linked = marks[number].facts.linked and number + 1 < len(marks)
    return replace(stage, output=stage.output + glue, modes=modes, linked=linked)


def _tail(survey: StepSurvey) -> Stage:
    """What follows the last stage (head, loss) as a stage that is always kept."""
    mode = Mode(
        name="full",
        forward=0.0,
        backward=0.0,
        saved=survey.tail_saved,
        forward_peak=survey.tail_forward,
        backward_peak=survey.tail_backward,
    )
    return Stage(output=0, gradient=0, bare=0.0, bare_peak=0, modes=(mode,), linked=False, recomputable=False)


class _Profiler:
    """Measures the stages as one forward pass meets them."""

    def __init__(
        self,
        model: nn.Module,
        stages: Sequence[StageCall],
        survey: StepSurvey,
        *,
        resources: RunResources,
        modes: Sequence[str],
    ) -> None:
        self.model, self.stages, self.survey, self.resources, self.modes = model, stages, survey, resources, modes
        self.costs: list[Stage] = []
        self._seen: dict[Any, Stage] = {}

    def call(
        self, module: nn.Module, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Measure the stage on these arguments, then go on with its result."""
        number = len(self.costs)
        if number >= len(self.stages) or self.stages[number].module is not module:
            return original(*args, **kwargs)
        mark = self.survey.marks[number]
        key = _structure(module, args, kwargs, mark)
        if key not in self._seen:
            bench = _Bench(self.model, self.resources, self.stages[number], mark.requires_grad)
            self._seen[key] = bench.measure(args, kwargs, self.modes)
        self.costs.append(self._seen[key])
        with nothing_saved():
            return original(*args, **kwargs)


def _structure(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], mark: StageObservation) -> Any:
    """What makes two stages cost the same."""
    leaves = flatten_call(args, kwargs)[0]
    shapes = tuple((x.shape, x.dtype, x.stride()) if isinstance(x, Tensor) else type(x) for x in leaves)
    weights = tuple((p.shape, p.dtype, p.requires_grad) for p in module.parameters())
    return repr(module), shapes, weights, mark.requires_grad, tuple(m.training for m in module.modules())


class _Bench:
    """Runs one stage over and over on the same arguments."""

    def __init__(
        self, model: nn.Module, resources: RunResources, stage: StageCall, requires_grad: tuple[bool, ...]
    ) -> None:
        self.model, self.resources, self.stage, self.requires_grad = model, resources, stage, requires_grad

    def measure(self, args: tuple[Any, ...], kwargs: dict[str, Any], names: Sequence[str]) -> Stage:
        """All costs of the stage."""
        self.leaves, self.spec = flatten_call(args, kwargs)
        bare_peak, output, gradient = self._bare_bytes()
        sizes: dict[str, _Bytes] = {}
        for name in names:
            found = self._bytes(name)
            moved = name in ("disk", "host")
            if moved or not sizes or found.saved < _GAIN * min(other.saved for other in sizes.values()):
                sizes[name] = found
        bare, times = self._times(list(sizes))
        modes = tuple(_mode(name, sizes[name], times[name]) for name in sizes)
        return Stage(
            output=output, gradient=gradient, bare=bare, bare_peak=bare_peak, modes=modes, ahead=self.stage.facts.quiet
        )

    def _fresh(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments cut off from all history; copies where the stage writes into them."""
        leaves = []
        for number, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor):
                leaf = leaf.detach()
                if self.requires_grad[number]:
                    leaf.requires_grad_()
                leaf = leaf.clone() if number in self.stage.writes else leaf
            leaves.append(leaf)
        return rebuild_call(leaves, self.spec)

    def _run_bare(self) -> Any:
        args, kwargs = self._fresh()
        with nothing_saved():
            return self.stage.original(*args, **kwargs)

    def _run(self, mode: str) -> tuple[Any, OffloadGroup | None]:
        """One forward, with what it put away; that is still in memory, as nobody has begun to write it."""
        args, kwargs = self._fresh()
        step = StageStep(regions=(), mode=mode, resolves=False)
        run, sink = self.resources.new_run(background=False), HeldTensors(save_or_rebuild)
        with torch.enable_grad():
            result = run_kept(self.stage, args, kwargs, step=step, sink=sink, save=self.resources.save, offload_run=run)
        return result, run.group if run is not None else None

    def _tracker(self) -> PeakTracker:
        return PeakTracker([*excluded_tensors(self.model), *(x for x in self.leaves if isinstance(x, Tensor))])

    def _bare_bytes(self) -> tuple[int, int, int]:
        """Peak, output and gradient bytes of a run that saves nothing."""
        with self._tracker() as tracker:
            result = self._run_bare()
            peak, output = tracker.peak, tracker.live
        grads = sum(x.nbytes for x in leaves_of(result) if isinstance(x, Tensor) and x.requires_grad)
        return peak, output, grads

    def _bytes(self, mode: str) -> _Bytes:
        """Sizes of one forward and backward."""
        with self._tracker() as tracker:
            result, group = self._run(mode)
            forward_peak, before = tracker.peak, tracker.live
            if group is not None:
                group.settle()
            with_output = tracker.live
            tensors = [x for x in leaves_of(result) if isinstance(x, Tensor) and x.requires_grad]
            rebuilt = mode.startswith("drop") and bool(tensors) and all(recipe_of(x) is not None for x in tensors)
            edges, grads = _roots(tensors)
            del result, tensors
            saved = tracker.live - sum(g.nbytes for g in grads)
            tracker.reset_peak()
            if edges:
                torch.autograd.backward(edges, grads)
            backward_peak = tracker.peak
            del grads
        return _Bytes(
            saved=saved if rebuilt else with_output,
            alone=saved,
            moved=before - with_output,
            fetched=group.nbytes if group is not None else 0,
            forward_peak=forward_peak,
            backward_peak=backward_peak,
            frees_output=rebuilt,
        )

    def _times(self, names: list[str]) -> tuple[float, dict[str, _Seconds]]:
        """The shortest of a few rounds; modes take turns, so that a disturbance hits them alike."""
        bare, best = float("inf"), {name: _Seconds() for name in names}
        for _ in range(_ROUNDS):
            bare = min(bare, _timed(self._run_bare))
            for name in names:
                best[name].improve(self._time_once(name))
        return bare, best

    def _time_once(self, name: str) -> _Seconds:
        begin = ticks()
        result, group = self._run(name)
        forward = ticks() - begin
        write = _timed(group.settle, wall=True) if group is not None else 0.0
        tensors = [x for x in leaves_of(result) if isinstance(x, Tensor) and x.requires_grad]
        edges, grads = _roots(tensors)
        saved = [save_or_rebuild(x) for x in tensors] if name.startswith("drop") else []
        del result, tensors
        read = _timed(group.bring, wall=True) if group is not None else 0.0
        backward = _timed(lambda: torch.autograd.backward(edges, grads)) if edges else 0.0
        rebuild = _timed(lambda: [entry.open() for entry in saved]) if saved else 0.0
        return _Seconds(forward=forward, backward=backward, rebuild=rebuild, write=write, read=read)


def _timed(run: Callable[[], Any], *, wall: bool = False) -> float:
    begin = ticks(wall=wall)
    run()
    return ticks(wall=wall) - begin


def _mode(name: str, sizes: _Bytes, seconds: _Seconds) -> Mode:
    return Mode(
        name=name,
        forward=seconds.forward,
        backward=seconds.backward,
        saved=sizes.saved,
        forward_peak=sizes.forward_peak,
        backward_peak=sizes.backward_peak,
        frees_output=sizes.frees_output,
        rebuild=seconds.rebuild if sizes.frees_output else 0.0,
        alone=sizes.alone,
        moved=sizes.moved,
        fetched=sizes.fetched,
        write=seconds.write,
        read=seconds.read,
    )


def _roots(tensors: list[Tensor]) -> tuple[list[Any], list[Tensor]]:
    """Where backward starts, without holding the outputs themselves."""
    return [get_gradient_edge(x) for x in tensors], [torch.ones_like(x) for x in tensors]
