"""Reinstate: inspect everything, then apply everything."""

from __future__ import annotations

import logging

import torch

from model_checkpoint.precision.checkpoints.base_state import apply_base
from model_checkpoint.precision.checkpoints.checkpoint import MixedPrecisionCheckpoint, PendingWindow
from model_checkpoint.precision.checkpoints.fit_check import adapt_scaler, inspect_fit
from model_checkpoint.precision.checkpoints.live_optimizer import LiveOptimizer
from model_checkpoint.precision.checkpoints.self_check import Finding, inspect_alone, list_errors, summarise
from model_checkpoint.precision.errors import CheckpointRefused
from model_checkpoint.precision.scaling.fallback import spread
from model_checkpoint.precision.stepping.session import Counters

_LOG = logging.getLogger("model_checkpoint.precision")


@torch.no_grad()
def restore(
    optimizer: LiveOptimizer,
    checkpoint: MixedPrecisionCheckpoint,
    *,
    weights: bool = True,
    state: bool = True,
) -> list[Finding]:
    """Continue from ``checkpoint``; returns warnings, raises :class:`CheckpointRefused` before anything changes."""
    findings = inspect_alone(checkpoint)
    if not list_errors(findings):
        findings += inspect_fit(checkpoint, optimizer, weights=weights, state=state)
    errors = list_errors(findings)
    if errors:
        raise CheckpointRefused(
            f"restore: {summarise(errors)}. Nothing was changed; make the optimizer fit, or choose another checkpoint.",
            findings=findings,
        )
    for finding in findings:
        _LOG.info("restore: %s", finding)
    if state:
        _apply_state(optimizer, checkpoint)
    if weights:
        _apply_weights(optimizer, checkpoint)
    optimizer.forget_map()
    return findings


def _apply_state(optimizer: LiveOptimizer, checkpoint: MixedPrecisionCheckpoint) -> None:
    session = optimizer.session
    session.scaler.restore_state(adapt_scaler(checkpoint, optimizer))
    session.counters = Counters(**checkpoint.counters)
    session.timeline.load_tree(checkpoint.timeline)
    session.last_result = None
    if session.monitor:
        session.monitor.restore(checkpoint.performance_stats)
    session.fallback = spread(checkpoint.fallback, optimizer.roster.group_count)
    session.use_modes()
    if checkpoint.base_optimizer_state is not None:
        apply_base(optimizer.roster, checkpoint.base_optimizer_state)
    optimizer.zero_grad()
    session.drop_window()
    if checkpoint.pending is not None:
        _apply_pending(optimizer, checkpoint.pending)


def _apply_pending(optimizer: LiveOptimizer, pending: PendingWindow) -> None:
    known = optimizer.roster.by_name
    for name, gradient in pending.gradients.items():
        parameter = known[name].param
        wide = optimizer.options.accumulate_in_fp32 or parameter.dtype == torch.float32
        dtype = torch.float32 if wide else gradient.dtype  # widening keeps every bit, anything else was refused
        parameter.grad = gradient.to(device=parameter.device, dtype=dtype, copy=True)
    optimizer.session.reopen_window(pending.scale, losses_finite=pending.losses_finite)


def _apply_weights(optimizer: LiveOptimizer, checkpoint: MixedPrecisionCheckpoint) -> None:
    for slot in optimizer.roster.slots:
        slot.master.copy_(checkpoint.master_weights[slot.name].tensor)
        slot.cast_down()
        trained = checkpoint.training_weights[slot.name]
        if not trained.is_derived and slot.is_reduced and trained.dtype == slot.param.dtype:
            slot.param.copy_(trained.tensor)
            slot.mark()
    live = optimizer.roster.untrained()
    for name, stored in checkpoint.untrained_weights.items():
        if name in live:
            live[name].copy_(stored.tensor)
