"""Tree codec: a checkpoint as a plain tree of dicts, lists, scalars and tensors, and back from any known layout.

Layout 1 is flat, fourteen fields with both weight maps by value; layout 2 keeps the whole scaler, modes, names and
timeline, and training weights only where they are not the cast of their masters; layout 3 says its number apart from
the version of the record, which in 1 and 2 had to serve for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import torch

from model_checkpoint.errors import CheckpointException, CorruptedCheckpoint, IncompatibleVersion
from model_checkpoint.precision.checkpoints.base_state import rekey_by_position
from model_checkpoint.precision.checkpoints.checkpoint import (
    COUNTERS,
    VERSION,
    MixedPrecisionCheckpoint,
    Numerics,
    PendingWindow,
)
from model_checkpoint.precision.checkpoints.weights import StoredWeight, same_bits
from model_checkpoint.precision.scaling.fallback import FallbackState, GroupMode, GroupState
from model_checkpoint.precision.scaling.scaler import ScalerState
from model_checkpoint.precision.settings.number_formats import Precision
from model_checkpoint.precision.settings.precision_options import MixedPrecisionOptions
from model_checkpoint.precision.stepping.monitor import PerformanceStats

FORMAT = "model_checkpoint.mixed_precision"
LAYOUT = 3
Tree = dict[str, Any]


def to_tree(checkpoint: MixedPrecisionCheckpoint) -> Tree:
    """The checkpoint as plain values and tensors; derived training weights are named, not stored."""
    training = checkpoint.training_weights
    return {
        "format": FORMAT,
        "layout": LAYOUT,
        "version": checkpoint.version,
        "timestamp": checkpoint.timestamp.isoformat(),
        "precision": checkpoint.target_precision.value,
        "options": checkpoint.options.to_tree(),
        "scaler": checkpoint.scaler.to_tree(),
        "counters": dict(checkpoint.counters),
        "fallback": checkpoint.fallback.to_tree(),
        "master": _plain(checkpoint.master_weights),
        "training_dtypes": {name: Precision.of(weight.dtype).value for name, weight in training.items()},
        "training_explicit": _plain({name: weight for name, weight in training.items() if not weight.is_derived}),
        "untrained": _plain(checkpoint.untrained_weights),
        "aliases": {name: list(others) for name, others in checkpoint.aliases.items()},
        "base": None if checkpoint.base_optimizer_state is None else dict(checkpoint.base_optimizer_state),
        "pending": _pack_pending(checkpoint.pending),
        "numerics": checkpoint.numerics.to_tree(),
        "performance": checkpoint.performance_stats.to_tree(),
        "timeline": [dict(event) for event in checkpoint.timeline],
        "metadata": dict(checkpoint.metadata),
    }


def _plain(weights: Mapping[str, StoredWeight]) -> Tree:
    return {name: weight.tensor for name, weight in weights.items()}


def _pack_pending(pending: PendingWindow | None) -> Tree | None:
    if pending is None:
        return None
    return {
        "scale": pending.scale,
        "losses_finite": pending.losses_finite,
        "gradients": dict(pending.gradients),
    }


def from_tree(tree: Mapping[str, Any]) -> MixedPrecisionCheckpoint:
    """The checkpoint a tree describes, migrated from an older layout where needed.

    Raises:
        IncompatibleVersion: its layout or its version is newer than this library.
        CorruptedCheckpoint: it is not a mixed-precision checkpoint, or lacks a part.
    """
    try:
        return _read(migrate(tree))
    except CheckpointException:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CorruptedCheckpoint(
            f"mixed-precision checkpoint: cannot be read: {type(error).__name__}: {error}. Load another one.",
            inner_exception=error,
        ) from error


def migrate(tree: Mapping[str, Any]) -> Tree:
    """The same checkpoint in the current layout."""
    if not isinstance(tree, Mapping) or not _is_ours(tree):
        found = sorted(map(str, tree))[:5] if isinstance(tree, Mapping) else type(tree).__name__
        raise CorruptedCheckpoint(
            f"mixed-precision checkpoint: this is something else, it holds {found}. "
            "Load what MixedPrecisionCheckpointManager.save_checkpoint wrote."
        )
    current = dict(tree)
    for layout in range(_read_number("layout", _find_layout(tree), newest=LAYOUT), LAYOUT):
        current = MIGRATIONS[layout](current)
    _read_number("version", current["version"], newest=VERSION)
    return current


def _find_layout(tree: Mapping[str, Any]) -> Any:
    return tree.get("layout", tree["version"])  # before layout 3 the version told the layout


def _read_number(field: str, number: Any, *, newest: int) -> int:
    if not isinstance(number, int) or number < 1:
        raise CorruptedCheckpoint(
            f"mixed-precision checkpoint: {field} is {number!r}, expected 1 to {newest}. Load another one."
        )
    if number > newest:
        raise IncompatibleVersion(
            f"mixed-precision checkpoint: {field} is {number}, this library reads up to {newest}. "
            "Update model-checkpoint, or load an older checkpoint."
        )
    return number


def _is_ours(tree: Mapping[str, Any]) -> bool:
    if "version" not in tree:
        return False
    return tree.get("format") == FORMAT or set(tree) >= _FIRST_FIELDS


def _read(tree: Tree) -> MixedPrecisionCheckpoint:
    masters = {name: StoredWeight.of(tensor) for name, tensor in tree["master"].items()}
    explicit = tree["training_explicit"]
    training = {
        name: StoredWeight.of(explicit[name])
        if name in explicit
        else StoredWeight(masters[name].source, Precision(dtype).dtype, True)
        for name, dtype in tree["training_dtypes"].items()
    }
    pending = tree["pending"]
    return MixedPrecisionCheckpoint(
        version=tree["version"],
        timestamp=datetime.fromisoformat(tree["timestamp"]),
        master_weights=masters,
        training_weights=training,
        options=MixedPrecisionOptions.from_tree(tree["options"]),
        target_precision=Precision(tree["precision"]),
        scaler=ScalerState.from_tree(tree["scaler"]),
        fallback=FallbackState.from_tree(tree["fallback"]),
        counters={name: int(tree["counters"][name]) for name in COUNTERS},
        base_optimizer_state=tree["base"],
        metadata=dict(tree["metadata"]),
        performance_stats=PerformanceStats(**tree["performance"]),
        untrained_weights={name: StoredWeight.of(tensor) for name, tensor in tree["untrained"].items()},
        aliases={name: tuple(others) for name, others in tree["aliases"].items()},
        numerics=Numerics(**tree["numerics"]),
        pending=None if pending is None else PendingWindow(**pending),
        timeline=tuple(tree["timeline"]),
    )


_FIRST_FIELDS = {
    "timestamp", "master_weights", "training_weights", "current_loss_scale", "steps_since_last_overflow",
    "consecutive_overflows", "total_overflows", "step_count", "has_fallback", "skipped_steps", "options",
    "base_optimizer_state", "metadata",
}  # fmt: skip


def _from_1_to_2(tree: Tree) -> Tree:
    """Layout 1 restarted its one step counter at overflow and at growth: it is the growth tracker."""
    options = MixedPrecisionOptions.from_tree(tree["options"])
    masters, training = tree["master_weights"], tree["training_weights"] or {}
    base = _name_first_base(tree["base_optimizer_state"], list(masters))
    steps = int(tree["steps_since_last_overflow"])
    group = GroupState(mode=GroupMode.FP32, attempts=1) if tree["has_fallback"] else GroupState()
    dtypes = {name: Precision.of(tensor.dtype).value for name, tensor in training.items()}
    return {
        "format": FORMAT,
        "version": 2,
        "timestamp": tree["timestamp"],
        "precision": Precision[tree["metadata"]["precision"]].value,
        "options": options.to_tree(),
        "scaler": {
            "scale": float(tree["current_loss_scale"]),
            "growth_tracker": steps % options.growth_interval,
            "hysteresis_left": options.hysteresis,
            "steps_since_overflow": steps,
            "consecutive_overflows": int(tree["consecutive_overflows"]),
            "total_overflows": int(tree["total_overflows"]),
            "floor_hits": 0,
        },
        "counters": {
            "step_count": int(tree["step_count"]),
            "skipped_steps": int(tree["skipped_steps"]),
            "bad_losses": 0,
            "clip_count": 0,
        },
        "fallback": FallbackState(groups=(group,) * (len(base["groups"]) if base else 1)).to_tree(),
        "master": masters,
        "training_dtypes": dtypes or dict.fromkeys(masters, options.precision.value),
        "training_explicit": {
            name: tensor for name, tensor in training.items() if not same_bits(tensor, masters[name].to(tensor.dtype))
        },
        "untrained": {},
        "aliases": {},
        "base": base,
        "pending": None,
        "numerics": Numerics().to_tree(),
        "performance": PerformanceStats().to_tree(),
        "timeline": [],
        "metadata": dict(tree["metadata"]),
    }  # fmt: skip


def _name_first_base(state: Mapping[str, Any] | None, names: list[str]) -> Tree | None:
    return None if state is None else rekey_by_position(state, names, "unknown", leaf=torch.Tensor.detach)


def _from_2_to_3(tree: Tree) -> Tree:
    """Layout 2 wrote its number where the version of the record belongs."""
    return {**tree, "layout": 3, "version": 1, "metadata": {**tree["metadata"], "version": "1.0"}}


MIGRATIONS: Mapping[int, Callable[[Tree], Tree]] = {1: _from_1_to_2, 2: _from_2_to_3}
