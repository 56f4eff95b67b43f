"""auto_checkpoint: give a model a memory budget and train on; the front door of this room for torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from model_checkpoint.recompute.auto.common.budget import parse_budget
from model_checkpoint.recompute.auto.common.determinism import Determinism
from model_checkpoint.recompute.auto.common.errors import ModelRefused
from model_checkpoint.recompute.auto.common.run_options import RunOptions
from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics
from model_checkpoint.recompute.auto.measuring.call_guard import CallGuard, guard, without_cache
from model_checkpoint.recompute.auto.measuring.model_profile import Profile, make_executor, profile_model, timed_step
from model_checkpoint.recompute.auto.measuring.sample import Sample
from model_checkpoint.recompute.auto.measuring.stages import FoundStage, FoundStages, find_stages
from model_checkpoint.recompute.auto.planning.calibrate import TriedSchedule
from model_checkpoint.recompute.auto.planning.outline import modules_of, outline_of
from model_checkpoint.recompute.auto.planning.plan import Plan
from model_checkpoint.recompute.auto.planning.plan_log import PlanLog, log_plan
from model_checkpoint.recompute.auto.running.stage_call import StageFacts

M = TypeVar("M", bound=nn.Module)


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
    executor: str = "native",
    tracker: PlanLog | None = None,
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
        profile: ``model.plan.profile`` of an earlier call on this model, to ask it for another budget. It does not
            keep the sample alive: pass ``sample_input`` (and ``loss``) again if you let go of them.
        determinism: ``off``, ``metadata``, ``checksum`` or ``hash``: how closely second runs are compared.
        prefetch: run the region backward needs next on a worker thread.
        offload: ``"disk"`` or ``"host"`` lets the planner also move saved tensors there.
        spill_dir: where ``offload="disk"`` writes; a temporary folder by default.
        executor: ``"native"`` runs any plan; ``"torch"`` keeps or recomputes single stages as regions of
            ``torch.utils.checkpoint``, so that ``torch.compile`` and ``fully_shard`` can follow.
        tracker: the run that trains the model, such as an ``ExperimentTracker``: the plan becomes one of its settings,
            and the dashboard shows it.

    Raises:
        BudgetTooSmall: no plan fits; the error states the floor.
        PlanMismatch: ``plan`` was made for another model.
        ModelRefused: the model cannot be recomputed faithfully (sharded or compiled before, changed arguments).
        SampleGone: a profile is asked again, and its sample is not there any more.

    Example:
        >>> import torch
        >>> model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)])
        >>> model = auto_checkpoint(model, 0.6, torch.randn(32, 64))
        >>> model.plan.peak_bytes <= model.plan.budget_bytes
        True
        >>> model.plan.remove()
    """
    _refuse(model)
    options = RunOptions(
        executor=executor,
        determinism=Determinism(determinism),
        prefetch=prefetch,
        offload=offload,
        spill_dir=spill_dir,
    )
    options.check(model)
    old = model.__dict__.get("plan")
    if isinstance(old, Plan):
        old.remove()
    if plan is not None:
        chosen = plan if isinstance(plan, Plan) else Plan.from_dict(plan)
        return _told(_apply_saved(model, chosen, sample_input, options=options), tracker)
    if memory_budget is None or (sample_input is None and profile is None):
        raise TypeError("auto_checkpoint: expected memory_budget and sample_input, or plan=.")
    sample = _sample(model, sample_input, loss, profile=profile)
    if profile is None:
        profile = profile_model(sample, options)
    profile.check(options)
    budget = parse_budget(memory_budget, plain_peak=profile.survey.peak)
    candidate = profile.calibration.choose(budget)
    return _told(_install(model, profile, candidate, sample=sample, budget=budget, options=options), tracker)


def _told(model: M, tracker: PlanLog | None) -> M:
    """Say to the run, if there is one, by which plan it trains."""
    if tracker is not None:
        log_plan(tracker, model.__dict__["plan"])
    return model


def _sample(
    model: nn.Module, sample_input: Any, loss: Callable[[Any], Tensor] | None, *, profile: Profile | None
) -> Sample:
    """The sample given, or that of the profile; held for this call only."""
    if sample_input is None:
        assert profile is not None
        return profile.sample.borrow()
    sample = Sample.of(model, without_cache(model, sample_input), loss)
    if profile is not None:
        profile.sample.lend(sample)
    return sample


def _refuse(model: nn.Module) -> None:
    """Name what cannot be recomputed yet."""
    for name, module in model.named_modules():
        kinds = {cls.__name__ for cls in type(module).__mro__}
        where = name or type(model).__name__
        if kinds & {"FullyShardedDataParallel", "FSDPModule"}:
            raise ModelRefused(
                f"{where}: sharded by FSDP already. "
                "Write auto_checkpoint(model, ..., executor='torch') before fully_shard."
            )
        if "OptimizedModule" in kinds or getattr(module, "_compiled_call_impl", None) is not None:
            raise ModelRefused(
                f"{where}: compiled by torch.compile already. "
                "Write torch.compile(auto_checkpoint(model, ..., executor='torch'))."
            )
        if "DistributedDataParallel" in kinds:
            raise ModelRefused(f"{where}: already wrapped in DDP. Write DDP(auto_checkpoint(model, ...)).")
    for name, parameter in model.named_parameters():
        if type(parameter.data).__name__ == "DTensor" or type(parameter).__name__ == "DTensor":
            raise ModelRefused(f"{name}: DTensor parameters are not supported. Pass the unsharded model.")


def _install(
    model: M, profile: Profile, candidate: TriedSchedule, *, sample: Sample, budget: int, options: RunOptions
) -> M:
    """Put a candidate in force and describe it as the model's plan."""
    plan = Plan(
        schedule=candidate.schedule,
        stages=profile.lines(),
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
        executor=options.executor,
        determinism=options.determinism.value,
        prefetch=options.prefetch,
        offload=options.offload,
        training=model.training,
        front=profile.front(),
        profile=profile,
    )
    _attach(model, plan, profile.facts, profile.found, options=options)
    if not plan.plain:
        _time_plan(model, sample, options)
    return model


def _time_plan(model: nn.Module, sample: Sample, options: RunOptions) -> None:
    """Measure a step by the plan in force; if it fails, the model is as it was."""
    attached: Plan = model.__dict__["plan"]
    try:
        with sample.untouched():
            seconds = timed_step(sample, wall=options.lanes)
    except BaseException:
        attached.remove()
        raise
    attached.statistics.reset()
    model.__dict__["plan"] = replace(attached, measured_seconds=seconds)


def _attach(model: nn.Module, plan: Plan, facts: list[StageFacts], found: FoundStages, *, options: RunOptions) -> None:
    """Make the plan the model's; a plan of plain training leaves the layers alone."""
    gate = CallGuard(model, plan.input_bytes)
    if plan.plain:
        undo, statistics = guard(model, gate).remove, RecomputeStatistics()
    else:
        executor = make_executor(model, facts, found, options=options)
        executor.use(plan.schedule)
        executor.on_start = gate
        executor.install()
        undo, statistics = executor.remove, executor.statistics

    def remove() -> None:
        undo()
        current = model.__dict__.get("plan")
        if isinstance(current, Plan) and current.on_remove is remove:
            del model.__dict__["plan"]

    model.__dict__["plan"] = replace(plan, on_remove=remove, statistics=statistics)


def _apply_saved(model: M, plan: Plan, sample_input: Any, *, options: RunOptions) -> M:
    """Run a model by a plan made earlier; a sample lets one forward check that its layers are called in that order."""
    modules = modules_of(model, plan)
    if sample_input is not None:
        sample = Sample.of(model, without_cache(model, sample_input))
        with sample.untouched():
            found = find_stages(model, sample.forward, blocks=plan.executor == "torch")
        plan.check_stages([stage.name for stage in found.stages])
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
        executor=plan.executor,
        determinism=Determinism(plan.determinism),
        prefetch=plan.prefetch,
        offload=plan.offload,
    )
    chosen.check(model)
    _attach(model, plan, facts, FoundStages(stages=stages, chain=plan.chain), options=chosen)
    return model
