"""auto_checkpoint: give a model a memory budget and train on; the front door of this room for torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from model_checkpoint.recompute.auto.common.agreement import agree_with_first
from model_checkpoint.recompute.auto.common.budget import parse_budget
from model_checkpoint.recompute.auto.common.clock import now
from model_checkpoint.recompute.auto.common.determinism import Determinism
from model_checkpoint.recompute.auto.common.errors import AutoCheckpointWarning, ModelRefused
from model_checkpoint.recompute.auto.common.overlap import measure_overlap
from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics
from model_checkpoint.recompute.auto.measuring.call_guard import CallGuard, guard, without_cache
from model_checkpoint.recompute.auto.measuring.profile import profile_chain
from model_checkpoint.recompute.auto.measuring.sample import Sample
from model_checkpoint.recompute.auto.measuring.stages import FoundStage, FoundStages, find_stages
from model_checkpoint.recompute.auto.measuring.survey import StepSurvey, survey_step
from model_checkpoint.recompute.auto.planning.calibrate import Calibration, Candidate
from model_checkpoint.recompute.auto.planning.forecast import Lanes
from model_checkpoint.recompute.auto.planning.outline import modules_of, outline_of
from model_checkpoint.recompute.auto.planning.pareto import ParetoRow
from model_checkpoint.recompute.auto.planning.plan import Plan, StageLine
from model_checkpoint.recompute.auto.planning.planner import Chain
from model_checkpoint.recompute.auto.planning.schedule import Schedule
from model_checkpoint.recompute.auto.running.offload import Offloader
from model_checkpoint.recompute.auto.running.runtime import Runtime, StageCall, StageFacts

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One model measured once: budgets asked of the same profile are answered monotonically."""

    sample: Sample
    found: FoundStages
    survey: StepSurvey
    chain: Chain
    calibration: Calibration
    plain_seconds: float
    options: Options

    def check(self, options: Options) -> None:
        """Refuse to be asked for plans that run otherwise than what was measured."""
        asked, measured = (options.prefetch, options.offload), (self.options.prefetch, self.options.offload)
        if asked != measured:
            raise ValueError(
                f"profile: made with prefetch, offload = {measured}, got {asked}. Pass the same, or a sample_input."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a plan is executed."""

    determinism: Determinism = Determinism.METADATA
    prefetch: bool = False
    offload: str | None = None
    spill_dir: str | Path | None = None

    @property
    def lanes(self) -> bool:
        """Whether something runs beside the main thread, so that only wall time tells how long a step takes."""
        return self.prefetch or self.offload is not None


def auto_checkpoint(
    model: M,
    memory_budget: str | float | int | None = None,
    sample_input: Any = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    plan: Plan | Mapping[str, Any] | None = None,
    profile: Profile | None = None,
    determinism: str | Determinism = Determinism.METADATA,
    prefetch: bool = False,
    offload: str | None = None,
    spill_dir: str | Path | None = None,
) -> M:
    """Make a model train within a number of activation bytes, and return the same object.

    The model is profiled on ``sample_input``, a schedule is planned, and candidates are run until one's measured peak
    is within the budget. The peak counts what forward and backward allocate: no parameters, buffers, ``.grad``, inputs.

    Args:
        model: the model, in the mode it will be trained in.
        memory_budget: ``"2GB"`` (10^9), ``"2GiB"`` (2^30), bytes, or a fraction of the plain peak in (0, 1].
        sample_input: a tensor, a tuple of arguments or a dict of keyword arguments, as large as training will use.
        loss: turns the model's output into a scalar; by default its ``.loss`` or the mean of squares.
        plan: a plan (or its ``to_dict()``) made earlier for this model; nothing is profiled then, and nothing but
            ``spill_dir`` is needed besides. With a ``sample_input`` one forward checks the order of the layers too.
        profile: ``model.plan.profile`` of an earlier call on this model, to ask it for another budget.
        determinism: ``off``, ``metadata``, ``checksum`` or ``hash``: how closely second runs are compared.
        prefetch: run the region backward needs next on a worker thread.
        offload: ``"disk"`` or ``"host"`` lets the planner also move saved tensors there.
        spill_dir: where ``offload="disk"`` writes; a temporary folder by default.

    Raises:
        BudgetTooSmall: no plan fits; the error states the floor.
        PlanMismatch: ``plan`` was made for another model.
        ModelRefused: the model cannot be recomputed faithfully (FSDP, torch.compile, changed arguments).

    Example:
        >>> import torch
        >>> model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)])
        >>> model = auto_checkpoint(model, 0.6, torch.randn(32, 64))
        >>> model.plan.peak_bytes <= model.plan.budget_bytes
        True
        >>> model.plan.remove()
    """
    _refuse(model)
    options = Options(
        determinism=Determinism(determinism), prefetch=prefetch, offload=_checked(offload, model), spill_dir=spill_dir
    )
    old = model.__dict__.get("plan")
    if isinstance(old, Plan):
        old.remove()
    if plan is not None:
        chosen = plan if isinstance(plan, Plan) else Plan.from_dict(plan)
        return _apply_saved(model, chosen, sample_input, options=options)
    if memory_budget is None or (sample_input is None and profile is None):
        raise TypeError("auto_checkpoint: expected memory_budget and sample_input, or plan=.")
    if profile is None:
        profile = _profile(Sample.of(model, without_cache(model, sample_input), loss), options)
    profile.check(options)
    budget = parse_budget(memory_budget, plain_peak=profile.survey.peak)
    candidate = profile.calibration.choose(budget)
    return _install(model, profile, candidate, budget=budget, options=options)


def _refuse(model: nn.Module) -> None:
    """Name what cannot be recomputed yet."""
    for name, module in model.named_modules():
        kinds = {cls.__name__ for cls in type(module).__mro__}
        where = name or type(model).__name__
        if kinds & {"FullyShardedDataParallel", "FSDPModule"}:
            raise ModelRefused(f"{where}: FSDP modules are not supported. Use auto_checkpoint before sharding, or DDP.")
        if "OptimizedModule" in kinds or getattr(module, "_compiled_call_impl", None) is not None:
            raise ModelRefused(f"{where}: compiled by torch.compile, which plans its own memory. Pass the eager model.")
        if "DistributedDataParallel" in kinds:
            raise ModelRefused(f"{where}: already wrapped in DDP. Write DDP(auto_checkpoint(model, ...)).")
    for name, parameter in model.named_parameters():
        if type(parameter.data).__name__ == "DTensor" or type(parameter).__name__ == "DTensor":
            raise ModelRefused(f"{name}: DTensor parameters are not supported. Pass the unsharded model.")


def _checked(offload: str | None, model: nn.Module) -> str | None:
    if offload not in (None, "disk", "host"):
        raise ValueError(f"offload: got {offload!r}, expected 'disk', 'host' or None.")
    if offload == "host" and all(p.device.type == "cpu" for p in model.parameters()):
        raise ValueError("offload: 'host' moves nothing for a model on the CPU. Use 'disk' or leave it out.")
    return offload


def _profile(sample: Sample, options: Options) -> Profile:
    """Look at the model, run a plain step, measure the stages, plan; leaves no trace in the model."""
    with sample.untouched():
        found = find_stages(sample.model, sample.forward)
        survey = survey_step(sample, found)
        runtime = _runtime(sample.model, [mark.facts for mark in survey.marks], found, options)
        modes = ["full", "drop"]
        modes += ["drop+masks"] if any(mark.facts.draws for mark in survey.marks) else []
        modes += [options.offload] if options.offload else []
        try:
            chain = agree_with_first(profile_chain(sample, runtime, survey, modes=modes))
        finally:
            runtime.remove()
        busy = agree_with_first(
            _timed(sample, wall=False)
        )  # by the clock of the stages: what others do meanwhile is no cost
        plain = _timed(sample, wall=True) if options.lanes else busy
    if not found.chain:
        warnings.warn(
            f"{type(sample.model).__name__}: not seen as a chain of layers; its {len(found.stages)} modules become "
            "single regions, which saves less. Put repeated layers into nn.Sequential or nn.ModuleList.",
            AutoCheckpointWarning,
            stacklevel=3,
        )
    base = survey.marks[0].begin
    measure = _measurer(sample, [mark.facts for mark in survey.marks], found, options=options)
    lanes = Lanes(overlap=agree_with_first(measure_overlap()), prefetch=options.prefetch) if options.lanes else None
    calibration = Calibration(
        chain, base=base, plain_peak=agree_with_first(survey.peak), plain_seconds=busy, measure=measure, lanes=lanes
    )
    return Profile(
        sample=sample,
        found=found,
        survey=survey,
        chain=chain,
        calibration=calibration,
        plain_seconds=plain,
        options=options,
    )


def _runtime(model: nn.Module, facts: list[StageFacts], found: FoundStages, options: Options) -> Runtime:
    stages = [StageCall(i, f, s.module) for i, (f, s) in enumerate(zip(facts, found.stages, strict=True))]
    offloader = Offloader(options.spill_dir) if options.offload else None
    return Runtime(model, stages, determinism=options.determinism, prefetch=options.prefetch, offloader=offloader)


def _measurer(
    sample: Sample, facts: list[StageFacts], found: FoundStages, *, options: Options
) -> Callable[[Schedule], int]:
    """A function that runs one step by a schedule under the tracker."""

    def measure(schedule: Schedule) -> int:
        with sample.untouched(), _runtime(sample.model, facts, found, options) as runtime:
            runtime.use(schedule)
            peak = sample.tracked_step().peak
            overlap = runtime.prefetcher.overlap if runtime.prefetcher is not None else 0
        return agree_with_first(peak + overlap)

    return measure


def _timed(sample: Sample, *, wall: bool, rounds: int = 2) -> float:
    """The shortest of a few plain or patched steps, in CPU seconds or by the clock."""
    spent = []
    for _ in range(rounds):
        start = now(wall=wall)
        sample.step()
        spent.append(now(wall=wall) - start)
    return min(spent)


def _install(model: M, profile: Profile, candidate: Candidate, *, budget: int, options: Options) -> M:
    """Put a candidate in force and describe it as the model's plan."""
    plan = Plan(
        schedule=candidate.schedule,
        stages=_lines(profile),
        outline=outline_of(model, without=[stage.module for stage in profile.found.stages]),
        chain=profile.found.chain,
        budget_bytes=budget,
        peak_bytes=candidate.peak,
        predicted_bytes=candidate.predicted,
        floor_bytes=profile.calibration.floor(),
        plain_bytes=profile.survey.peak,
        predicted_seconds=candidate.seconds,
        measured_seconds=profile.plain_seconds,
        plain_seconds=profile.plain_seconds,
        input_bytes=profile.sample.input_bytes,
        determinism=options.determinism.value,
        prefetch=options.prefetch,
        offload=options.offload,
        training=model.training,
        front=_front(profile),
        profile=profile,
    )
    facts = [mark.facts for mark in profile.survey.marks]
    _attach(model, plan, facts, profile.found, options=options)
    if not plan.plain:
        _time_plan(model, profile, options)
    return model


def _time_plan(model: nn.Module, profile: Profile, options: Options) -> None:
    """Measure a step by the plan in force; if it fails, the model is as it was."""
    attached: Plan = model.__dict__["plan"]
    try:
        with profile.sample.untouched():
            seconds = _timed(profile.sample, wall=options.lanes)
    except BaseException:
        attached.remove()
        raise
    attached.statistics.reset()
    model.__dict__["plan"] = replace(attached, measured_seconds=seconds)


def _lines(profile: Profile) -> tuple[StageLine, ...]:
    facts = (mark.facts for mark in profile.survey.marks)
    return tuple(
        StageLine(
            **asdict(fact),
            outline=outline_of(found.module),
            saved_bytes=stage.modes[0].saved,
            output_bytes=stage.output,
            forward_seconds=stage.modes[0].forward,
        )
        for fact, found, stage in zip(facts, profile.found.stages, profile.chain.stages, strict=False)
    )


def _front(profile: Profile) -> tuple[ParetoRow, ...]:
    """Predicted points of the table and the measured candidates, by size."""
    calibration, base = profile.calibration, profile.survey.marks[0].begin
    plain = calibration.plain
    points = [(base + p.bytes, calibration.seconds(p), False) for p in calibration.points]
    points += [(c.peak, c.seconds, True) for c in calibration.candidates]
    return tuple(
        ParetoRow(
            bytes=size, share=size / max(plain.peak, 1), slowdown=seconds / max(plain.seconds, 1e-12), measured=run
        )
        for size, seconds, run in sorted(points)
    )


def _attach(model: nn.Module, plan: Plan, facts: list[StageFacts], found: FoundStages, *, options: Options) -> None:
    """Make the plan the model's; a plan of plain training leaves the layers alone."""
    gate = CallGuard(model, plan.input_bytes)
    if plan.plain:
        undo, statistics = guard(model, gate).remove, RecomputeStatistics()
    else:
        runtime = _runtime(model, facts, found, options)
        runtime.use(plan.schedule)
        runtime.on_start = gate
        runtime.install()
        undo, statistics = runtime.remove, runtime.statistics

    def remove() -> None:
        undo()
        current = model.__dict__.get("plan")
        if isinstance(current, Plan) and current.on_remove is remove:
            del model.__dict__["plan"]

    model.__dict__["plan"] = replace(plan, on_remove=remove, statistics=statistics)


def _apply_saved(model: M, plan: Plan, sample_input: Any, *, options: Options) -> M:
    """Run a model by a plan made earlier; a sample lets one forward check that its layers are called in that order."""
    modules = modules_of(model, plan)
    if sample_input is not None:
        sample = Sample.of(model, without_cache(model, sample_input))
        with sample.untouched():
            plan.check_stages([stage.name for stage in find_stages(model, sample.forward).stages])
    names = StageFacts.__dataclass_fields__
    facts = [StageFacts(**{name: getattr(line, name) for name in names}) for line in plan.stages]
    if model.training != plan.training:  # which buffers change was seen in the other mode
        facts = [
            replace(fact, buffers=tuple(path for path, _ in module.named_buffers()))
            for fact, module in zip(facts, modules, strict=True)
        ]
    stages = tuple(
        FoundStage(name=fact.name, module=module, linked=fact.linked)
        for fact, module in zip(facts, modules, strict=True)
    )
    chosen = replace(
        options,
        determinism=Determinism(plan.determinism),
        prefetch=plan.prefetch,
        offload=_checked(plan.offload, model),
    )
    _attach(model, plan, facts, FoundStages(stages=stages, chain=plan.chain), options=chosen)
    return model
