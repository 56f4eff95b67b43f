"""DynamicLossScaler: the loss scale and when it moves.

The rule is one pure function, :func:`advance`; the class holds its state and speaks to tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any, Protocol, runtime_checkable
from weakref import WeakSet

import torch

from model_checkpoint.precision.errors import InvalidArgument
from model_checkpoint.precision.settings.precision_options import FOR_FP16, HysteresisRefill, MixedPrecisionOptions


class ScaleMove(Enum):
    """What one update did to the scale."""

    KEPT = "kept"
    GREW = "grew"
    BACKED_OFF = "backed_off"
    TOLERATED = "tolerated"
    AT_FLOOR = "at_floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerState:
    """Everything the scaler must not lose between two runs."""

    scale: float
    growth_tracker: int = 0
    hysteresis_left: int = 1
    steps_since_overflow: int = 0
    consecutive_overflows: int = 0
    total_overflows: int = 0
    floor_hits: int = 0

    def to_tree(self) -> dict[str, Any]:
        """Plain values, one per field."""
        return asdict(self)

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> ScalerState:
        """The state a tree describes; unknown and missing fields are refused by name."""
        known = {field.name for field in fields(cls)}
        if set(tree) != known:
            missing, unknown = sorted(known - set(tree)), sorted(set(tree) - known)
            raise InvalidArgument(
                f"scaler state: missing {missing}, unknown {unknown}. "
                "Use import_scaler_state() for the state of another library."
            )
        return cls(scale=float(tree["scale"]), **{name: int(tree[name]) for name in known - {"scale"}})


@runtime_checkable
class CarriesScaler(Protocol):
    """Something that holds a scaler's state, as a checkpoint does."""

    @property
    def scaler(self) -> ScalerState:
        """The state."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScalerStats:
    """A snapshot of the scaler for people and logs."""

    current_scale: float
    steps_since_last_overflow: int
    consecutive_overflows: int
    total_overflows: int
    growth_tracker: int
    hysteresis_left: int
    floor_hits: int
    growth_interval: int
    max_consecutive_overflows: int
    is_enabled: bool

    @property
    def is_stable(self) -> bool:
        """Whether fewer overflows came in a row than trigger a fallback."""
        return self.consecutive_overflows < self.max_consecutive_overflows


def initial_state(options: MixedPrecisionOptions) -> ScalerState:
    """The state before the first step."""
    return ScalerState(scale=float(options.initial_loss_scale), hysteresis_left=options.hysteresis)


def advance(state: ScalerState, had_overflow: bool, options: MixedPrecisionOptions) -> tuple[ScalerState, ScaleMove]:
    """The state after one optimizer step.

    Example:
        >>> state, move = advance(ScalerState(scale=8.0), True, MixedPrecisionOptions())
        >>> state.scale, move.value
        (4.0, 'backed_off')
    """
    return _after_overflow(state, options) if had_overflow else _after_success(state, options)


def _after_overflow(state: ScalerState, options: MixedPrecisionOptions) -> tuple[ScalerState, ScaleMove]:
    counted = replace(
        state,
        growth_tracker=0,
        steps_since_overflow=0,
        consecutive_overflows=state.consecutive_overflows + 1,
        total_overflows=state.total_overflows + 1,
    )
    if state.hysteresis_left > 1:
        return replace(counted, hysteresis_left=state.hysteresis_left - 1), ScaleMove.TOLERATED
    if options.hysteresis_refill is HysteresisRefill.BACKOFF:
        counted = replace(counted, hysteresis_left=options.hysteresis)
    if state.scale <= options.min_loss_scale:
        return replace(counted, floor_hits=state.floor_hits + 1), ScaleMove.AT_FLOOR
    lowered = max(state.scale * options.backoff_factor, options.min_loss_scale)
    return replace(counted, scale=lowered), ScaleMove.BACKED_OFF


def _after_success(state: ScalerState, options: MixedPrecisionOptions) -> tuple[ScalerState, ScaleMove]:
    refill = options.hysteresis_refill is HysteresisRefill.SUCCESS
    counted = replace(
        state,
        consecutive_overflows=0,
        steps_since_overflow=state.steps_since_overflow + 1,
        growth_tracker=state.growth_tracker + 1,
        hysteresis_left=options.hysteresis if refill else state.hysteresis_left,
    )
    if counted.growth_tracker < options.growth_interval:
        return counted, ScaleMove.KEPT
    grown = min(state.scale * options.growth_factor, options.max_loss_scale)
    counted = replace(counted, growth_tracker=0, hysteresis_left=options.hysteresis, scale=grown)
    return counted, ScaleMove.GREW if grown > state.scale else ScaleMove.KEPT


class DynamicLossScaler:
    """Scales the loss so that small FP16 gradients do not vanish, and backs off when large ones overflow.

    Disabled (by option, or because the precision is not FP16) it passes everything through; finding non-finite
    gradients is then still the optimizer's duty. Several optimizers may share one scaler: it moves once, after
    all of them have stepped.

    Example:
        >>> scaler = DynamicLossScaler()
        >>> scaler.update_scale(True), scaler.current_scale
        (True, 32768.0)
    """

    def __init__(self, options: MixedPrecisionOptions | None = FOR_FP16) -> None:
        if options is None:
            raise InvalidArgument("loss scaler: options is None. Pass MixedPrecisionOptions.for_fp16() or another.")
        self._options = options
        self._state = initial_state(options)
        self._enabled = options.enable_dynamic_loss_scaling and options.precision.needs_scale
        self._members: WeakSet[Any] = WeakSet()
        self._reported: dict[int, bool | None] = {}
        self._losses: list[torch.Tensor] = []
        self._scalings = 0

    @property
    def options(self) -> MixedPrecisionOptions:
        """The options given."""
        return self._options

    @property
    def is_enabled(self) -> bool:
        """Whether losses are scaled at all."""
        return self._enabled

    @property
    def current_scale(self) -> float:
        """The scale kept; it acts only while enabled."""
        return self._state.scale

    @property
    def active_scale(self) -> float:
        """The factor on the loss: the current scale, or 1.0 when disabled."""
        return self._state.scale if self._enabled else 1.0

    @property
    def state(self) -> ScalerState:
        """The whole state, as a value."""
        return self._state

    @property
    def consecutive_overflows(self) -> int:
        """Overflows since the last finite step."""
        return self._state.consecutive_overflows

    @property
    def steps_since_last_overflow(self) -> int:
        """Finite steps since the last overflow; growth does not restart it."""
        return self._state.steps_since_overflow

    @property
    def growth_tracker(self) -> int:
        """Finite steps since the last overflow or growth."""
        return self._state.growth_tracker

    @property
    def total_overflows(self) -> int:
        """Overflows ever."""
        return self._state.total_overflows

    @property
    def scalings(self) -> int:
        """How many losses were scaled; lets a step notice that none was."""
        return self._scalings

    @property
    def has_open_window(self) -> bool:
        """Whether some but not all of the sharing optimizers have stepped."""
        return bool(self._reported)

    @property
    def is_shared(self) -> bool:
        """Whether more than one optimizer steps with this scale."""
        return len(self._members) > 1

    @property
    def saw_bad_loss(self) -> bool:
        """Whether a loss of the present window was NaN or Inf before it was scaled."""
        return not all(bool(finite) for finite in self._losses)

    def scale_loss(self, loss: torch.Tensor, *, scale: float | None = None) -> torch.Tensor:
        """The loss times the scale, in FP32 so that the product itself cannot overflow a half."""
        require_loss(loss)
        self._scalings += 1
        self._losses.append(torch.isfinite(loss.detach()).all())
        factor = self.active_scale if scale is None else scale
        if factor == 1.0:
            return loss
        wide = loss.float() if loss.dtype in (torch.float16, torch.bfloat16) else loss
        return wide * factor

    def unscale_gradients(self, gradients: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The gradients divided by the current scale; half gradients come back as FP32."""
        _require_gradients(gradients, "unscale_gradients")
        if not self._enabled:
            return dict(gradients)
        inverse = 1.0 / self._state.scale
        return {name: gradient.float() * inverse for name, gradient in gradients.items()}

    def check_overflow(self, gradients: Mapping[str, torch.Tensor]) -> bool:
        """Whether any gradient holds NaN or Inf; always False when disabled."""
        _require_gradients(gradients, "check_overflow")
        return self._enabled and not all(bool(torch.isfinite(g).all()) for g in gradients.values())

    def update_scale(self, had_overflow: bool) -> bool:
        """Move the scale once for one step; returns whether the step must be skipped."""
        self._move(had_overflow)
        return self._enabled and had_overflow

    def check_overflow_and_update(self, gradients: Mapping[str, torch.Tensor]) -> bool:
        """Both at once; returns whether the step must be skipped."""
        return self.update_scale(self.check_overflow(gradients))

    def join(self, member: object) -> None:
        """Let ``member`` (an optimizer) take part in every update."""
        self._members.add(member)

    def report(self, member: object, *, had_overflow: bool | None) -> ScaleMove | None:
        """Take one member's verdict (None abstains); moves the scale when all have spoken, else returns None."""
        earlier = self._reported.get(id(member))
        self._reported[id(member)] = earlier or had_overflow
        if not {id(one) for one in self._members} <= set(self._reported):
            return None
        verdicts = [verdict for verdict in self._reported.values() if verdict is not None]
        self.close_window()
        return self._move(any(verdicts)) if verdicts else ScaleMove.KEPT

    def close_window(self) -> None:
        """Forget losses and verdicts of steps that will not be completed."""
        self._reported.clear()
        self._losses.clear()

    def _move(self, had_overflow: bool) -> ScaleMove:
        self._losses.clear()
        moved, move = advance(self._state, had_overflow, self._options)
        if self._enabled:
            self._state = moved
            return move
        # counting goes on, so that BF16 and FP32 runs can be judged; the scale and its trackers rest
        self._state = replace(
            self._state,
            steps_since_overflow=moved.steps_since_overflow,
            consecutive_overflows=moved.consecutive_overflows,
            total_overflows=moved.total_overflows,
        )
        return ScaleMove.KEPT

    def lower_to(self, scale: float) -> None:
        """Continue at ``scale``, kept within the limits; used when a group returns from FP32."""
        bounded = min(max(scale, self._options.min_loss_scale), self._options.max_loss_scale)
        self._state = replace(self._state, scale=bounded, growth_tracker=0, consecutive_overflows=0)

    def reset(self) -> None:
        """Start over: initial scale, all counters zero."""
        self._state = initial_state(self._options)
        self.close_window()

    def get_stats(self) -> LossScalerStats:
        """A snapshot of scale, counters and limits."""
        state = self._state
        return LossScalerStats(
            current_scale=self.current_scale,
            steps_since_last_overflow=state.steps_since_overflow,
            consecutive_overflows=state.consecutive_overflows,
            total_overflows=state.total_overflows,
            growth_tracker=state.growth_tracker,
            hysteresis_left=state.hysteresis_left,
            floor_hits=state.floor_hits,
            growth_interval=self._options.growth_interval,
            max_consecutive_overflows=self._options.max_consecutive_overflows,
            is_enabled=self._enabled,
        )

    def state_dict(self) -> dict[str, Any]:
        """The state as plain values."""
        return self._state.to_tree()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.restore_state(ScalerState.from_tree(state))

    def restore_state(self, source: ScalerState | CarriesScaler) -> None:
        """Continue from a state or a checkpoint; a state out of this scaler's limits is refused."""
        state = source if isinstance(source, ScalerState) else source.scaler
        problems = find_problems(state, self._options)
        if problems:
            raise InvalidArgument(f"scaler state: {'; '.join(problems)}. Widen the options or correct the state.")
        self._state = state
        self.close_window()


def require_loss(loss: object) -> None:
    """Raise unless ``loss`` is a tensor."""
    if not isinstance(loss, torch.Tensor):
        got = "None" if loss is None else f"a {type(loss).__name__}"
        raise InvalidArgument(f"scale_loss: loss is {got}, expected a tensor. Pass the one to call backward on.")


def find_problems(state: ScalerState, options: MixedPrecisionOptions) -> list[str]:
    """What in ``state`` contradicts itself or ``options``, one sentence each.

    Example:
        >>> find_problems(ScalerState(scale=0.5), MixedPrecisionOptions())
        ['scale is 0.5, expected between 1.0 and 1000000000.0']
    """
    low, high = options.min_loss_scale, options.max_loss_scale
    counters = (state.growth_tracker, state.steps_since_overflow, state.consecutive_overflows,
                state.total_overflows, state.floor_hits)  # fmt: skip
    checks = [
        (math.isfinite(state.scale) and low <= state.scale <= high,
         f"scale is {state.scale}, expected between {low} and {high}"),
        (min(counters) >= 0, f"counters are {counters}, expected none below 0"),
        (state.growth_tracker < options.growth_interval,
         f"growth_tracker is {state.growth_tracker}, expected below growth_interval {options.growth_interval}"),
        (1 <= state.hysteresis_left <= options.hysteresis,
         f"hysteresis_left is {state.hysteresis_left}, expected 1 to {options.hysteresis}"),
        (state.consecutive_overflows <= state.total_overflows,
         f"consecutive_overflows {state.consecutive_overflows} exceeds total_overflows {state.total_overflows}"),
        (state.growth_tracker <= state.steps_since_overflow,
         f"growth_tracker {state.growth_tracker} exceeds steps_since_overflow {state.steps_since_overflow}"),
    ]  # fmt: skip
    return [problem for holds, problem in checks if not holds]


def _require_gradients(gradients: object, where: str) -> None:
    if gradients is None:
        raise InvalidArgument(f"{where}: gradients is None. Pass a mapping of parameter name to gradient.")
