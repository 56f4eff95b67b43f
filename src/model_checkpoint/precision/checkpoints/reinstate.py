"""Reinstate: take the precision of what was saved, inspect everything, then apply everything."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

from model_checkpoint.errors import CorruptedCheckpoint
from model_checkpoint.precision.checkpoints.base_state import apply_base
from model_checkpoint.precision.checkpoints.checkpoint import MixedPrecisionCheckpoint, PendingWindow
from model_checkpoint.precision.checkpoints.fit_check import adapt_scaler, inspect_fit
from model_checkpoint.precision.checkpoints.live_optimizer import LiveOptimizer
from model_checkpoint.precision.checkpoints.self_check import Finding, inspect_alone, list_errors, summarise
from model_checkpoint.precision.errors import CheckpointRefused
from model_checkpoint.precision.scaling.fallback import FallbackState, spread
from model_checkpoint.precision.stepping.session import Counters

_LOG = logging.getLogger("model_checkpoint.precision")


def take_modes(optimizer: LiveOptimizer, saved: Mapping[str, Any]) -> Callable[[], None] | None:
    """Train every group in the precision it was saved in, so that the saved model fits; returns the way back, if any.

    Values stay: weights are the casts of their masters, or the masters themselves.
    """
    session, table, before = optimizer.session, optimizer.parameter_table, optimizer.session.fallback
    try:
        wanted = spread(FallbackState.from_tree(saved), table.group_count)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptedCheckpoint(
            f"mixed-precision checkpoint: the modes of its groups cannot be read: {type(error).__name__}: {error}. "
            "Load another one.",
            inner_exception=error,
        ) from error
    if wanted.fp32_groups == before.fp32_groups:
        return None
    tensors: list[torch.Tensor] = [slot.param for slot in table.slots]
    tensors += [] if table.model is None else [*table.model.parameters(), *table.model.buffers()]
    present = [(tensor, tensor.data, tensor.grad) for tensor in tensors]

    def enter(state: FallbackState) -> None:
        session.fallback = state
        session.use_modes()
        optimizer.forget_map()

    def undo() -> None:
        enter(before)
        for tensor, data, gradient in present:
            tensor.data, tensor.grad = data, gradient
        for slot in table.slots:
            slot.mark()

    enter(wanted)
    return undo


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
    session.fallback = spread(checkpoint.fallback, optimizer.parameter_table.group_count)
    session.use_modes()
    if checkpoint.base_optimizer_state is not None:
        apply_base(optimizer.parameter_table, checkpoint.base_optimizer_state)
    optimizer.zero_grad()
    session.drop_window()
    if checkpoint.pending is not None:
        _apply_pending(optimizer, checkpoint.pending)


def _apply_pending(optimizer: LiveOptimizer, pending: PendingWindow) -> None:
    known = optimizer.parameter_table.by_name
    for name, gradient in pending.gradients.items():
        parameter = known[name].param
        wide = optimizer.options.accumulate_in_fp32 or parameter.dtype == torch.float32
        dtype = torch.float32 if wide else gradient.dtype  # widening keeps every bit, anything else was refused
        parameter.grad = gradient.to(device=parameter.device, dtype=dtype, copy=True)
    optimizer.session.reopen_window(pending.scale, losses_finite=pending.losses_finite)


def _apply_weights(optimizer: LiveOptimizer, checkpoint: MixedPrecisionCheckpoint) -> None:
    for slot in optimizer.parameter_table.slots:
        slot.master.copy_(checkpoint.master_weights[slot.name].tensor)
        slot.cast_down()
        trained = checkpoint.training_weights[slot.name]
        if not trained.is_derived and slot.is_reduced and trained.dtype == slot.param.dtype:
            slot.param.copy_(trained.tensor)
            slot.mark()
    live = optimizer.parameter_table.untrained()
    for name, stored in checkpoint.untrained_weights.items():
        if name in live:
            live[name].copy_(stored.tensor)
