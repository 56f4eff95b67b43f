"""Capture: take a snapshot of a running optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import torch

from model_checkpoint.precision.checkpoints.base_state import capture_base, name_torch_state
from model_checkpoint.precision.checkpoints.checkpoint import (
    SYSTEM_KEYS,
    VERSION,
    MixedPrecisionCheckpoint,
    Numerics,
    PendingWindow,
)
from model_checkpoint.precision.checkpoints.live_optimizer import LiveOptimizer
from model_checkpoint.precision.checkpoints.weights import StoredWeight
from model_checkpoint.precision.errors import InvalidArgument, PendingGradients
from model_checkpoint.precision.stepping.apply_step import describe_kernel

PendingPolicy = Literal["refuse", "save"]


@torch.no_grad()
def capture(
    optimizer: LiveOptimizer,
    *,
    copy: bool = True,
    base_optimizer_state: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
    pending: PendingPolicy = "refuse",
) -> MixedPrecisionCheckpoint:
    """Everything about ``optimizer`` as a value; with ``copy`` it stays as it is while training goes on."""
    table, session = optimizer.parameter_table, optimizer.session
    if not table.slots:
        raise InvalidArgument("checkpoint: the optimizer has no parameters yet. Call set_parameters() first.")
    leaf = _clone if copy else _alias
    masters = {slot.name: leaf(slot.master) for slot in table.slots}
    return MixedPrecisionCheckpoint(
        master_weights={name: StoredWeight.of(tensor) for name, tensor in masters.items()},
        training_weights={s.name: _store_training(s.param, masters[s.name], leaf) for s in table.slots},
        untrained_weights={name: StoredWeight.of(leaf(tensor)) for name, tensor in table.untrained().items()},
        aliases={slot.name: slot.names[1:] for slot in table.slots if len(slot.names) > 1},
        options=optimizer.options.clone(),
        target_precision=optimizer.target_precision,
        scaler=session.scaler.state,
        fallback=session.fallback,
        counters=asdict(session.counters),
        base_optimizer_state=(
            capture_base(table, leaf=leaf)
            if base_optimizer_state is None
            else name_torch_state(base_optimizer_state, table, leaf=leaf)
        ),
        metadata=_join_metadata(metadata, optimizer),
        performance_stats=session.performance,
        numerics=describe_numerics(optimizer),
        pending=_take_pending(optimizer, pending, leaf),
        timeline=tuple(session.timeline.to_tree()),
    )


def describe_numerics(optimizer: LiveOptimizer) -> Numerics:
    """The kernel flavour, thread count and torch version of this process."""
    kernel = describe_kernel(optimizer.base_optimizer)
    return Numerics(kernel=kernel, threads=torch.get_num_threads(), torch_version=str(torch.__version__))


def _store_training(parameter: torch.Tensor, master: torch.Tensor, leaf: Any) -> StoredWeight:
    stored = StoredWeight.of_training(parameter.detach(), master)
    return stored if stored.is_derived else StoredWeight.of(leaf(parameter))


def _join_metadata(metadata: Mapping[str, str] | None, optimizer: LiveOptimizer) -> dict[str, str]:
    given = dict(metadata or {})
    taken = [key for key in SYSTEM_KEYS if key in given]
    if taken:
        raise InvalidArgument(f"metadata: {taken} are written by the library itself. Choose other keys.")
    odd = [key for key, value in given.items() if not (isinstance(key, str) and isinstance(value, str))]
    if odd:
        raise InvalidArgument(f"metadata: keys and values must be text, got other types at {odd}. Convert them.")
    return {**given, "precision": optimizer.target_precision.name, "version": f"{VERSION}.0"}


def _take_pending(optimizer: LiveOptimizer, policy: PendingPolicy, leaf: Any) -> PendingWindow | None:
    if policy not in ("refuse", "save"):
        raise InvalidArgument(f"checkpoint: pending is {policy!r}, expected 'refuse' or 'save'. Choose one of them.")
    session, names = optimizer.session, optimizer.session.find_pending()
    if session.scaler.has_open_window:
        raise PendingGradients(
            "checkpoint: some optimizers that share the scaler have stepped and some not. Save after all have."
        )
    if not names:
        return None
    if policy == "refuse":
        raise PendingGradients(
            f"checkpoint: {len(names)} parameters ({names[0]}, ...) have gradients that were not stepped. "
            "Save after step(), or pass pending='save' to keep them (4 bytes per parameter)."
        )
    known = optimizer.parameter_table.by_name
    gradients = {name: leaf(gradient) for name in names if (gradient := known[name].param.grad) is not None}
    return PendingWindow(scale=session.loss_scale, losses_finite=session.losses_finite, gradients=gradients)


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach()
