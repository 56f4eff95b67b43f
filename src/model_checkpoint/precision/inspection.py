"""Inspection: every reason why a checkpoint is unsound, or does not fit an optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TYPE_CHECKING

import torch

from model_checkpoint.precision.capture import describe_numerics
from model_checkpoint.precision.checkpoint import VERSION, MixedPrecisionCheckpoint
from model_checkpoint.precision.finite import judge_gradients
from model_checkpoint.precision.options import MixedPrecisionOptions
from model_checkpoint.precision.preflight import check_precision_change
from model_checkpoint.precision.scaler import ScalerState, find_problems
from model_checkpoint.precision.weights import StoredWeight

if TYPE_CHECKING:
    from model_checkpoint.precision.optimizer import MixedPrecisionOptimizer


class Severity(Enum):
    """Whether a finding forbids a restore or only deserves to be known."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found; ``name`` is the parameter or field it is about."""

    severity: Severity
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.name}: {self.message}"


def inspect_alone(checkpoint: MixedPrecisionCheckpoint | None) -> list[Finding]:
    """What is wrong with a checkpoint by itself."""
    if checkpoint is None:
        return [_error("checkpoint", "is None")]
    if checkpoint.version <= 0 or checkpoint.version > VERSION:
        return [_error("version", f"is {checkpoint.version}, expected 1 to {VERSION}")]
    if checkpoint.options is None or not checkpoint.master_weights:
        missing = "options" if checkpoint.options is None else "master_weights"
        return [_error(missing, "is missing or empty")]
    return [*_inspect_weights(checkpoint), *_inspect_state(checkpoint), *_inspect_base(checkpoint)]


def _inspect_weights(checkpoint: MixedPrecisionCheckpoint) -> Iterator[Finding]:
    masters, training = checkpoint.master_weights, checkpoint.training_weights or {}
    for name in sorted(set(masters) ^ set(training)):
        yield _error(name, "has no training weight" if name in masters else "has no master weight")
    for name, master in masters.items():
        if master.dtype != torch.float32:
            yield _error(name, f"master is {master.dtype}, expected torch.float32")
        elif not judge_gradients([master.tensor]).is_finite:
            yield _error(name, "master holds NaN or Inf")
        trained = training.get(name)
        if trained is not None and trained.shape != master.shape:
            yield _error(name, f"training weight has shape {trained.shape}, its master {master.shape}")
        elif trained is not None and not trained.is_derived:
            yield _warning(name, "training weight is stored explicitly, it is not the cast of its master")


def _inspect_state(checkpoint: MixedPrecisionCheckpoint) -> Iterator[Finding]:
    for problem in find_problems(checkpoint.scaler, checkpoint.options):
        yield _error("scaler", problem)
    counters = checkpoint.counters
    if min(counters.values()) < 0 or counters["skipped_steps"] > counters["step_count"]:
        yield _error("counters", f"{counters['skipped_steps']} skipped of {counters['step_count']} steps is impossible")
    if counters["bad_losses"] > counters["skipped_steps"] or checkpoint.total_overflows > counters["skipped_steps"]:
        yield _error("counters", "more overflows or bad losses than skipped steps")


def _inspect_base(checkpoint: MixedPrecisionCheckpoint) -> Iterator[Finding]:
    base = checkpoint.base_optimizer_state
    if base is None:
        yield _warning("base_optimizer_state", "is missing; moments will start from zero")
        return
    grouped = [name for group in base["groups"] for name in group["params"]]
    for name in sorted(set(checkpoint.master_weights) ^ set(grouped)):
        yield _error(name, "is not in exactly one of master weights and optimizer groups")
    for name in sorted(set(base["state"]) - set(checkpoint.master_weights)):
        yield _error(name, "has optimizer state but no master weight")
    if len(base["groups"]) != len(checkpoint.fallback.groups):
        yield _error("fallback", f"{len(checkpoint.fallback.groups)} modes for {len(base['groups'])} groups")
    applied = checkpoint.counters["step_count"] - checkpoint.counters["skipped_steps"]
    for name, entries in base["state"].items():
        step = entries.get("step")
        if isinstance(step, torch.Tensor) and step.numel() == 1 and float(step) > applied:
            yield _warning(name, f"was stepped {int(step)} times, the run applied {applied}; it was trained before")


def inspect_fit(
    checkpoint: MixedPrecisionCheckpoint, optimizer: MixedPrecisionOptimizer, *, weights: bool, state: bool
) -> list[Finding]:
    """What stands between a sound checkpoint and this optimizer."""
    findings = list(_compare_names(checkpoint, optimizer))
    if weights:
        findings += _compare_untrained(checkpoint, optimizer)
        findings += _compare_precision(checkpoint, optimizer)
    if state:
        findings += _compare_base(checkpoint, optimizer)
        findings += _compare_numerics(checkpoint, optimizer)
        findings += _compare_options(checkpoint.options, optimizer.options)
        adapted = adapt_scaler(checkpoint, optimizer)
        if adapted != checkpoint.scaler:
            findings.append(_warning("scaler", f"continues as {adapted}, the options differ from the checkpoint's"))
    return findings


def _compare_names(checkpoint: MixedPrecisionCheckpoint, optimizer: MixedPrecisionOptimizer) -> Iterator[Finding]:
    live = {slot.name: slot for slot in optimizer.roster.slots}
    stored = checkpoint.master_weights
    for name in sorted(set(live) - set(stored)):
        yield _error(name, "is in the optimizer but not in the checkpoint")
    for name in sorted(set(stored) - set(live)):
        yield _error(name, "is in the checkpoint but not in the optimizer")
    for name in sorted(set(stored) & set(live)):
        shape = tuple(live[name].master.shape)
        if stored[name].shape != shape:
            yield _error(name, f"has shape {stored[name].shape} in the checkpoint, {shape} in the optimizer")
        tied = checkpoint.aliases.get(name, ())
        if set(tied) != set(live[name].names[1:]):
            yield _error(name, f"is tied to {list(tied)} in the checkpoint, to {list(live[name].names[1:])} here")


def _compare_untrained(checkpoint: MixedPrecisionCheckpoint, optimizer: MixedPrecisionOptimizer) -> list[Finding]:
    live: Mapping[str, torch.Tensor] = optimizer.roster.untrained()
    stored: Mapping[str, StoredWeight] = checkpoint.untrained_weights
    if optimizer.roster.model is None:
        return [_warning(name, "is frozen or a buffer, and no model was given to restore it into") for name in stored]
    if not stored:
        return [
            _warning(name, "frozen parameter or buffer is not in the checkpoint and stays as it is") for name in live
        ]
    findings = [
        _error(name, "frozen parameter or buffer is in only one of checkpoint and model")
        for name in sorted(set(live) ^ set(stored))
    ]
    for name in sorted(set(live) & set(stored)):
        if stored[name].shape != tuple(live[name].shape):
            findings.append(_error(name, f"has shape {stored[name].shape}, the model {tuple(live[name].shape)}"))
    return findings


def _compare_precision(checkpoint: MixedPrecisionCheckpoint, optimizer: MixedPrecisionOptimizer) -> list[Finding]:
    target = optimizer.target_precision
    if checkpoint.target_precision is target:
        return []
    masters = {name: weight.tensor for name, weight in checkpoint.master_weights.items()}
    report = check_precision_change(masters, target)
    findings = [
        _error(name, f"{count} weights exceed {target.name}; exclude this layer with fp32_layer_patterns")
        for name, count in report.overflowing.items()
    ]
    findings += [
        _warning(name, f"{count} non-zero weights vanish in {target.name}; their masters keep them")
        for name, count in report.vanishing.items()
    ]
    return [*findings, _warning("precision", f"changes from {checkpoint.target_precision.name} to {target.name}")]


def _compare_base(checkpoint: MixedPrecisionCheckpoint, optimizer: MixedPrecisionOptimizer) -> list[Finding]:
    stored = checkpoint.base_optimizer_state
    if stored is None:
        return []
    kind = type(optimizer.base_optimizer).__name__
    if stored["kind"] not in (kind, "unknown"):
        return [_error("base_optimizer_state", f"is of {stored['kind']}, the optimizer is {kind}")]
    live = [
        [slot.name for slot in optimizer.roster.slots if slot.group == place]
        for place in range(optimizer.roster.group_count)
    ]
    if [sorted(group["params"]) for group in stored["groups"]] != [sorted(names) for names in live]:
        return [_error("param_groups", f"hold other parameters ({len(stored['groups'])} and {len(live)} groups)")]
    return []


def _compare_numerics(checkpoint: MixedPrecisionCheckpoint, optimizer: MixedPrecisionOptimizer) -> list[Finding]:
    stored, live = checkpoint.numerics, describe_numerics(optimizer)
    return [
        _warning(one.name, f"was {getattr(stored, one.name)}, is {getattr(live, one.name)}: the last bits may differ")
        for one in fields(stored)
        if getattr(stored, one.name) != getattr(live, one.name)
    ]


def _compare_options(stored: MixedPrecisionOptions, live: MixedPrecisionOptions) -> list[Finding]:
    before, now = stored.to_tree(), live.to_tree()
    return [
        _warning(f"options.{name}", f"was {before[name]}, is {now[name]}; the optimizer's own is kept")
        for name in before
        if before[name] != now[name]
    ]


def adapt_scaler(checkpoint: MixedPrecisionCheckpoint, optimizer: MixedPrecisionOptimizer) -> ScalerState:
    """The stored scaler state within the limits of the optimizer's own scaler.

    A scale that never served (BF16 runs have none) gives way to the initial one of an FP16 run.
    """
    stored, options = checkpoint.scaler, optimizer.scaler.options
    never_used = stored.scale == checkpoint.options.initial_loss_scale and not checkpoint.target_precision.needs_scale
    scale = options.initial_loss_scale if never_used and optimizer.scaler.is_enabled else stored.scale
    return replace(
        stored,
        scale=min(max(scale, options.min_loss_scale), options.max_loss_scale),
        growth_tracker=min(stored.growth_tracker, options.growth_interval - 1),
        hysteresis_left=min(max(stored.hysteresis_left, 1), options.hysteresis),
    )


def list_errors(findings: Iterable[Finding]) -> list[Finding]:
    """Those that forbid a restore."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def summarise(findings: Sequence[Finding]) -> str:
    """The first few in one line.

    Example:
        >>> summarise([Finding(severity=Severity.ERROR, name="w", message="is missing")])
        'w: is missing'
    """
    shown = "; ".join(f"{one.name}: {one.message}" for one in findings[:5])
    return shown if len(findings) <= 5 else f"{shown}; and {len(findings) - 5} more"


def _error(name: str, message: str) -> Finding:
    return Finding(severity=Severity.ERROR, name=name, message=message)


def _warning(name: str, message: str) -> Finding:
    return Finding(severity=Severity.WARNING, name=name, message=message)
