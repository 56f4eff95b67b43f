"""Fit check: every reason why a sound checkpoint does not fit an optimizer, and what will be different."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

import torch

from model_checkpoint.precision.checkpoints.capture import describe_numerics
from model_checkpoint.precision.checkpoints.checkpoint import MixedPrecisionCheckpoint
from model_checkpoint.precision.checkpoints.live_optimizer import LiveOptimizer
from model_checkpoint.precision.checkpoints.preflight import check_precision_change
from model_checkpoint.precision.checkpoints.self_check import Finding, error, warning
from model_checkpoint.precision.checkpoints.weights import StoredWeight
from model_checkpoint.precision.scaling.fallback import spread
from model_checkpoint.precision.scaling.scaler import ScalerState
from model_checkpoint.precision.settings.number_formats import Precision
from model_checkpoint.precision.settings.precision_options import MixedPrecisionOptions
from model_checkpoint.tree.nodes.names import strip_wrappers

Dtypes = Mapping[str, torch.dtype]


def inspect_fit(
    checkpoint: MixedPrecisionCheckpoint, optimizer: LiveOptimizer, *, weights: bool, state: bool
) -> list[Finding]:
    """What stands between a sound checkpoint and this optimizer."""
    findings, planned = list(_compare_names(checkpoint, optimizer)), _plan(checkpoint, optimizer, state=state)
    if weights:
        findings += _compare_untrained(checkpoint, optimizer, planned)
        findings += _compare_precision(checkpoint, optimizer, planned)
    if state:
        findings += _compare_pending(checkpoint, optimizer, planned)
        findings += _compare_base(checkpoint, optimizer)
        findings += _compare_numerics(checkpoint, optimizer)
        findings += _compare_options(checkpoint.options, optimizer.options)
        adapted = adapt_scaler(checkpoint, optimizer)
        if adapted != checkpoint.scaler:
            findings.append(warning("scaler", f"continues as {adapted}, the options differ from the checkpoint's"))
    return findings


def _compare_names(checkpoint: MixedPrecisionCheckpoint, optimizer: LiveOptimizer) -> Iterator[Finding]:
    live = {slot.name: slot for slot in optimizer.parameter_table.slots}
    stored = checkpoint.master_weights
    for name in sorted(set(live) - set(stored)):
        yield error(name, "is in the optimizer but not in the checkpoint")
    for name in sorted(set(stored) - set(live)):
        yield error(name, "is in the checkpoint but not in the optimizer")
    for name in sorted(set(stored) & set(live)):
        shape = tuple(live[name].master.shape)
        if stored[name].shape != shape:
            yield error(name, f"has shape {stored[name].shape} in the checkpoint, {shape} in the optimizer")
        tied = checkpoint.aliases.get(name, ())
        if set(tied) != set(live[name].names[1:]):
            yield error(name, f"is tied to {list(tied)} in the checkpoint, to {list(live[name].names[1:])} here")


def _plan(checkpoint: MixedPrecisionCheckpoint, optimizer: LiveOptimizer, *, state: bool) -> Dtypes:
    """The dtype each weight will have after the restore; modes come from the checkpoint when state is restored."""
    table = optimizer.parameter_table
    modes = spread(checkpoint.fallback, table.group_count) if state else optimizer.session.fallback
    return table.plan_dtypes(modes.fp32_groups)


def _compare_untrained(
    checkpoint: MixedPrecisionCheckpoint, optimizer: LiveOptimizer, planned: Dtypes
) -> list[Finding]:
    live: Mapping[str, torch.Tensor] = optimizer.parameter_table.untrained()
    stored: Mapping[str, StoredWeight] = checkpoint.untrained_weights
    if optimizer.parameter_table.model is None:
        return [warning(name, "is frozen or a buffer, and no model was given to restore it into") for name in stored]
    parameters = {
        strip_wrappers(name) for name, _ in optimizer.parameter_table.model.named_parameters(remove_duplicate=False)
    }
    if not stored:
        return [
            warning(name, "frozen parameter or buffer is not in the checkpoint and stays as it is") for name in live
        ]
    findings = [
        error(name, "frozen parameter or buffer is in only one of checkpoint and model")
        for name in sorted(set(live) ^ set(stored))
    ]
    for name in sorted(set(live) & set(stored)):
        if stored[name].shape != tuple(live[name].shape):
            findings.append(error(name, f"has shape {stored[name].shape}, the model {tuple(live[name].shape)}"))
        elif name in planned or name not in parameters:  # those of other optimizers have masters there
            findings += _compare_cast(name, stored[name].source, planned.get(name, live[name].dtype))
    return findings


def _compare_cast(name: str, stored: torch.Tensor, dtype: torch.dtype) -> Iterator[Finding]:
    """What is lost when an untrained tensor, which has no master, is written as ``dtype``."""
    if stored.dtype == dtype:
        return
    if stored.is_floating_point() != dtype.is_floating_point or stored.is_complex() != dtype.is_complex:
        yield error(name, f"is {stored.dtype} in the checkpoint, {dtype} in the model")
        return
    cast = stored.to(dtype)
    changed = int(torch.count_nonzero(cast.to(stored.dtype) != stored))
    if bool((torch.isinf(cast) & torch.isfinite(stored)).any()):
        yield error(name, f"holds weights that exceed {dtype}; exclude this layer with fp32_layer_patterns")
    elif changed:
        yield warning(name, f"is not trained and has no master: {changed} values are rounded to {dtype}")


def _compare_precision(
    checkpoint: MixedPrecisionCheckpoint, optimizer: LiveOptimizer, planned: Dtypes
) -> list[Finding]:
    """What happens to weights that will be trained in another precision than they were."""
    target, before = optimizer.target_precision, checkpoint.target_precision
    trained = {name: weight.dtype for name, weight in checkpoint.training_weights.items()}
    moved = [name for name in checkpoint.master_weights if name in planned and trained[name] != planned[name]]
    narrowed = {n: checkpoint.master_weights[n].tensor for n in moved if planned[n] == target.dtype}
    report = check_precision_change(narrowed, target)
    findings = [
        error(name, f"{count} weights exceed {target.name}; exclude this layer with fp32_layer_patterns")
        for name, count in report.overflowing.items()
    ]
    findings += [
        warning(name, f"{count} non-zero weights vanish in {target.name}; their masters keep them")
        for name, count in report.vanishing.items()
    ]
    if before is not target:
        return [*findings, warning("precision", f"changes from {before.name} to {target.name}")]
    for name in moved:
        was, will = Precision.of(trained[name]).name, Precision.of(planned[name]).name
        findings.append(warning(name, f"was trained in {was}, will be in {will}: exclusions or modes differ"))
    return findings


def _compare_pending(
    checkpoint: MixedPrecisionCheckpoint, optimizer: LiveOptimizer, planned: Dtypes
) -> Iterator[Finding]:
    """Pending gradients the options have no room for; half ones may be widened, but never cast to another half."""
    if checkpoint.pending is None or optimizer.options.accumulate_in_fp32:
        return
    for name, gradient in checkpoint.pending.gradients.items():
        room = planned.get(name, gradient.dtype)
        if room != torch.float32 and gradient.dtype != room:
            yield error(name, f"pending gradient is {gradient.dtype}, {room} here; choose accumulate_in_fp32=True")


def _compare_base(checkpoint: MixedPrecisionCheckpoint, optimizer: LiveOptimizer) -> list[Finding]:
    stored = checkpoint.base_optimizer_state
    if stored is None:
        return []
    kind = type(optimizer.base_optimizer).__name__
    if stored["kind"] not in (kind, "unknown"):
        return [error("base_optimizer_state", f"is of {stored['kind']}, the optimizer is {kind}")]
    live = [
        [slot.name for slot in optimizer.parameter_table.slots if slot.group == place]
        for place in range(optimizer.parameter_table.group_count)
    ]
    if [sorted(group["params"]) for group in stored["groups"]] != [sorted(names) for names in live]:
        return [error("param_groups", f"hold other parameters ({len(stored['groups'])} and {len(live)} groups)")]
    return []


def _compare_numerics(checkpoint: MixedPrecisionCheckpoint, optimizer: LiveOptimizer) -> list[Finding]:
    stored, live = checkpoint.numerics, describe_numerics(optimizer)
    return [
        warning(one.name, f"was {getattr(stored, one.name)}, is {getattr(live, one.name)}: the last bits may differ")
        for one in fields(stored)
        if getattr(stored, one.name) != getattr(live, one.name)
    ]


def _compare_options(stored: MixedPrecisionOptions, live: MixedPrecisionOptions) -> list[Finding]:
    before, now = stored.to_tree(), live.to_tree()
    return [
        warning(f"options.{name}", f"was {before[name]}, is {now[name]}; the optimizer's own is kept")
        for name in before
        if before[name] != now[name]
    ]


def adapt_scaler(checkpoint: MixedPrecisionCheckpoint, optimizer: LiveOptimizer) -> ScalerState:
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
        hysteresis_left=min(stored.hysteresis_left, options.hysteresis),
    )
