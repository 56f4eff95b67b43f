"""Importers: continue with the loss scale of torch GradScaler, Apex, Megatron or DeepSpeed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model_checkpoint.precision.errors import InvalidArgument
from model_checkpoint.precision.scaling.scaler import ScalerState


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedScaler:
    """Another library's scaler: its state, and the option fields it ran with as far as it says."""

    source: str
    state: ScalerState
    options: Mapping[str, Any] = field(default_factory=dict)


def import_scaler_state(foreign: Any) -> ImportedScaler:
    """Recognise a scaler's saved state by its fields and translate it.

    Fields the other library does not keep start at zero; hysteresis it does not have starts full at 1.

    Example:
        >>> theirs = {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000,
        ...           "_growth_tracker": 7}
        >>> import_scaler_state(theirs).state.growth_tracker
        7
    """
    values = foreign if isinstance(foreign, Mapping) else getattr(foreign, "__dict__", {})
    for fields, read in _READERS:
        if fields <= set(values):
            return read(values)
    first = sorted(map(str, values))
    if first and first[0].startswith("loss_scaler"):
        return _read_apex(values)
    raise InvalidArgument(
        f"scaler state: has fields {first[:6]}, which no known library writes. "
        "Known are torch GradScaler, Apex amp, Megatron and DeepSpeed."
    )


def _read_torch(values: Mapping[str, Any]) -> ImportedScaler:
    tracker = int(values["_growth_tracker"])
    return ImportedScaler(
        source="torch GradScaler",
        state=ScalerState(scale=float(values["scale"]), growth_tracker=tracker, steps_since_overflow=tracker),
        options={
            "growth_factor": float(values["growth_factor"]),
            "backoff_factor": float(values["backoff_factor"]),
            "growth_interval": int(values["growth_interval"]),
        },
    )


def _read_apex(values: Mapping[str, Any]) -> ImportedScaler:
    scalers = sorted(name for name in values if str(name).startswith("loss_scaler"))
    if len(scalers) > 1:
        raise InvalidArgument(f"Apex state: holds {scalers}, one per loss. Pass one of them as {{name: state}}.")
    one = values[scalers[0]]
    tracker = int(one["unskipped"])
    state = ScalerState(scale=float(one["loss_scale"]), growth_tracker=tracker, steps_since_overflow=tracker)
    return ImportedScaler(source="Apex amp", state=state)


def _read_megatron(values: Mapping[str, Any]) -> ImportedScaler:
    tracker = int(values["growth_tracker"])
    state = ScalerState(
        scale=float(values["scale"]),
        growth_tracker=tracker,
        hysteresis_left=max(int(values["hysteresis_tracker"]), 1),
        steps_since_overflow=tracker,
    )
    return ImportedScaler(source="Megatron", state=state)


def _read_deepspeed(values: Mapping[str, Any]) -> ImportedScaler:
    window = int(values["scale_window"])
    clean = int(values["cur_iter"]) - int(values["last_overflow_iter"]) - 1
    state = ScalerState(
        scale=float(values["cur_scale"]),
        growth_tracker=max(clean, 0) % window,
        hysteresis_left=max(int(values.get("cur_hysteresis", 1)), 1),
        steps_since_overflow=max(clean, 0),
    )
    factor = float(values["scale_factor"])
    options = {"growth_factor": factor, "backoff_factor": 1.0 / factor, "growth_interval": window}
    if "delayed_shift" in values:
        options["hysteresis"] = int(values["delayed_shift"])
    return ImportedScaler(source="DeepSpeed", state=state, options=options)


_READERS = (
    (frozenset({"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}), _read_torch),
    (frozenset({"scale", "growth_tracker", "hysteresis_tracker"}), _read_megatron),
    (frozenset({"cur_scale", "cur_iter", "last_overflow_iter", "scale_factor", "scale_window"}), _read_deepspeed),
)
