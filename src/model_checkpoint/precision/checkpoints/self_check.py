"""Self check: every reason why a checkpoint by itself cannot be continued from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from model_checkpoint.precision.checkpoints.checkpoint import COUNTERS, VERSION, MixedPrecisionCheckpoint, PendingWindow
from model_checkpoint.precision.checkpoints.weights import StoredWeight
from model_checkpoint.precision.gradients.finite import judge_gradients
from model_checkpoint.precision.scaling.fallback import FallbackState
from model_checkpoint.precision.scaling.scaler import ScalerState, find_problems
from model_checkpoint.precision.settings.precision_options import MixedPrecisionOptions

# torch's own optimizers keep these as large as the parameter
_FULL_SIZE = frozenset({
    "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "sum", "square_avg", "acc_delta",
    "grad_avg", "prev", "step_size", "ax",
})  # fmt: skip


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
    if not isinstance(checkpoint, MixedPrecisionCheckpoint):
        got = "None" if checkpoint is None else f"a {type(checkpoint).__name__}"
        return [error("checkpoint", f"is {got}, expected a MixedPrecisionCheckpoint")]
    if not isinstance(checkpoint.version, int) or not 1 <= checkpoint.version <= VERSION:
        return [error("version", f"is {checkpoint.version!r}, expected 1 to {VERSION}")]
    return [*_inspect_kinds(checkpoint)] or [
        *_inspect_weights(checkpoint),
        *_inspect_state(checkpoint),
        *_inspect_base(checkpoint),
        *_inspect_pending(checkpoint),
    ]


def _inspect_kinds(checkpoint: MixedPrecisionCheckpoint) -> Iterator[Finding]:
    """Fields of which nothing more can be said, because they are missing or something else."""
    kinds = {"options": MixedPrecisionOptions, "scaler": ScalerState, "fallback": FallbackState}
    for field, kind in kinds.items():
        if not isinstance(getattr(checkpoint, field), kind):
            yield error(field, f"is {getattr(checkpoint, field)!r}, expected a {kind.__name__}")
    if not _holds(checkpoint.master_weights, StoredWeight) or not checkpoint.master_weights:
        yield error("master_weights", "is missing or empty, expected a mapping of name to StoredWeight")
    if not _holds(checkpoint.training_weights or {}, StoredWeight):
        yield error("training_weights", "is something else than a mapping of name to StoredWeight")
    counters = checkpoint.counters
    if not _holds(counters, int) or not set(COUNTERS) <= set(counters):
        yield error("counters", f"is {counters!r}, expected whole numbers for {', '.join(COUNTERS)}")
    if not (checkpoint.base_optimizer_state is None or _is_base(checkpoint.base_optimizer_state)):
        yield error("base_optimizer_state", "has another form than create_checkpoint gives it: kind, state and groups")
    pending: object = checkpoint.pending
    if pending is not None and not (isinstance(pending, PendingWindow) and _holds(pending.gradients, torch.Tensor)):
        yield error("pending", f"is a {type(pending).__name__}, expected None or a PendingWindow of tensors")


def _holds(values: object, kind: type) -> bool:
    return isinstance(values, Mapping) and all(isinstance(value, kind) for value in values.values())


def _is_base(base: Any) -> bool:
    if not isinstance(base, Mapping) or not {"kind", "state", "groups"} <= set(base):
        return False
    groups, state = base["groups"], base["state"]
    return _holds(state, Mapping) and all(
        isinstance(group, Mapping) and isinstance(group.get("values"), Mapping) and "params" in group
        for group in groups
    )


def _inspect_weights(checkpoint: MixedPrecisionCheckpoint) -> Iterator[Finding]:
    masters, training = checkpoint.master_weights, checkpoint.training_weights or {}
    for name in sorted(set(masters) ^ set(training)):
        yield error(name, "has no training weight" if name in masters else "has no master weight")
    for name, master in masters.items():
        if master.dtype != torch.float32:
            yield error(name, f"master is {master.dtype}, expected torch.float32")
        elif not judge_gradients([master.tensor]).is_finite:
            yield error(name, "master holds NaN or Inf")
        trained = training.get(name)
        if trained is not None and trained.shape != master.shape:
            yield error(name, f"training weight has shape {trained.shape}, its master {master.shape}")
        elif trained is not None and not trained.is_derived:
            yield warning(name, "training weight is stored explicitly, it is not the cast of its master")


def _inspect_state(checkpoint: MixedPrecisionCheckpoint) -> Iterator[Finding]:
    for problem in find_problems(checkpoint.scaler, checkpoint.options):
        yield error("scaler", problem)
    counters = checkpoint.counters
    if min(counters.values()) < 0 or counters["skipped_steps"] > counters["step_count"]:
        yield error("counters", f"{counters['skipped_steps']} skipped of {counters['step_count']} steps is impossible")
    if counters["bad_losses"] > counters["skipped_steps"] or checkpoint.total_overflows > counters["skipped_steps"]:
        yield error("counters", "more overflows or bad losses than skipped steps")


def _inspect_base(checkpoint: MixedPrecisionCheckpoint) -> Iterator[Finding]:
    base = checkpoint.base_optimizer_state
    if base is None:
        yield warning("base_optimizer_state", "is missing; moments will start from zero")
        return
    grouped = [name for group in base["groups"] for name in group["params"]]
    for name in sorted(set(checkpoint.master_weights) ^ set(grouped)):
        yield error(name, "is not in exactly one of master weights and optimizer groups")
    for name in sorted(set(base["state"]) - set(checkpoint.master_weights)):
        yield error(name, "has optimizer state but no master weight")
    if len(base["groups"]) != len(checkpoint.fallback.groups):
        yield error("fallback", f"{len(checkpoint.fallback.groups)} modes for {len(base['groups'])} groups")
    yield from _inspect_moments(checkpoint, base)
    applied = checkpoint.counters["step_count"] - checkpoint.counters["skipped_steps"]
    for name, entries in base["state"].items():
        step = entries.get("step")
        if isinstance(step, torch.Tensor) and step.numel() == 1 and float(step) > applied:
            yield warning(name, f"was stepped {int(step)} times, the run applied {applied}; it was trained before")


def _inspect_moments(checkpoint: MixedPrecisionCheckpoint, base: Mapping[str, Any]) -> Iterator[Finding]:
    """Moments that would break the first step."""
    ours = hasattr(torch.optim, base["kind"])
    for name, entries in base["state"].items():
        master = checkpoint.master_weights.get(name)
        for key, value in entries.items():
            if master is None or not isinstance(value, torch.Tensor) or not value.ndim:
                continue
            if ours and key in _FULL_SIZE and tuple(value.shape) != master.shape:
                yield error(name, f"{key} has shape {tuple(value.shape)}, its master {master.shape}")
            if value.is_floating_point() and bool(torch.isnan(torch.linalg.vector_norm(value))):
                yield error(name, f"{key} holds NaN, which the next step would spread to the weights")


def _inspect_pending(checkpoint: MixedPrecisionCheckpoint) -> Iterator[Finding]:
    pending = checkpoint.pending
    if pending is None:
        return
    if not (isinstance(pending.scale, int | float) and 0 < pending.scale < float("inf")):
        yield error("pending", f"scale is {pending.scale!r}, expected a finite number above 0")
    for name, gradient in pending.gradients.items():
        master = checkpoint.master_weights.get(name)
        if master is None:
            yield error(name, "has a pending gradient but no master weight")
        elif tuple(gradient.shape) != master.shape:
            yield error(name, f"pending gradient has shape {tuple(gradient.shape)}, its master {master.shape}")


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


def error(name: str, message: str) -> Finding:
    """A finding that forbids a restore."""
    return Finding(severity=Severity.ERROR, name=name, message=message)


def warning(name: str, message: str) -> Finding:
    """A finding that deserves to be known."""
    return Finding(severity=Severity.WARNING, name=name, message=message)
