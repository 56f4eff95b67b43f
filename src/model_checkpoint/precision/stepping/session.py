"""Session: one optimizer's run - the window of losses, the verdict on each step, counters, modes and timeline."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Any

import torch

from model_checkpoint.precision.errors import NonFiniteTraining, StepRefused
from model_checkpoint.precision.gradients.conversion import clip_coefficient
from model_checkpoint.precision.gradients.finite import Offender, Verdict, judge_gradients, name_offenders
from model_checkpoint.precision.parameters.parameter_table import ParameterTable, Work
from model_checkpoint.precision.scaling import fallback as modes
from model_checkpoint.precision.scaling.consensus import agree_on
from model_checkpoint.precision.scaling.fallback import FallbackState, GroupState, ModeChange, Skip
from model_checkpoint.precision.scaling.scaler import DynamicLossScaler, ScaleMove, require_loss
from model_checkpoint.precision.scaling.timeline import ScaleEvent, ScaleTimeline
from model_checkpoint.precision.stepping.apply_step import apply_step
from model_checkpoint.precision.stepping.monitor import PerformanceMonitor, PerformanceStats
from model_checkpoint.precision.stepping.results import StepReason, StepResult

_LOG = logging.getLogger("model_checkpoint.precision")


@dataclass(slots=True)
class Counters:
    """What was counted since the run began."""

    step_count: int = 0  # attempts, skipped ones included
    skipped_steps: int = 0
    bad_losses: int = 0
    clip_count: int = 0

    def to_tree(self) -> dict[str, Any]:
        """Plain values, one per field."""
        return asdict(self)


class Session:
    """Judges, applies or skips each step, and moves scale and modes afterwards."""

    def __init__(
        self,
        table: ParameterTable,
        *,
        scaler: DynamicLossScaler,
        monitor: PerformanceMonitor | None,
        process_group: Any,
    ) -> None:
        self.scaler, self.counters = scaler, Counters()
        self.fallback = FallbackState(groups=(GroupState(),) * table.group_count)
        self.timeline = ScaleTimeline(table.options.timeline_length)
        self.last_result: StepResult | None = None
        self.last_norm = 0.0
        self.monitor = monitor
        self._table, self._options, self._group = table, table.options, process_group
        self._window_scale: float | None = None
        self._finite_losses: list[torch.Tensor] = []
        self._seen_scalings = scaler.scalings
        self._spent: dict[str, tuple[int, int]] = {}  # gradients already stepped, to tell them from pending ones

    @property
    def is_parked(self) -> bool:
        """Whether no weight is in reduced precision, so that no scale is needed."""
        return not self.scaler.is_shared and not self._table.reduced_groups and bool(self._table.slots)

    @property
    def loss_scale(self) -> float:
        """The factor the next loss gets."""
        if self._window_scale is not None:
            return self._window_scale
        return 1.0 if self.is_parked else self.scaler.active_scale

    @property
    def performance(self) -> PerformanceStats:
        """Measured times; zeros when monitoring is off."""
        return self.monitor.get_stats() if self.monitor else PerformanceStats()

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """Scale one loss of the present window; all losses of a window get the same scale."""
        require_loss(loss)
        self._window_scale = self.loss_scale
        self._finite_losses.append(torch.isfinite(loss.detach()).all())
        return self.scaler.scale_loss(loss, scale=self._window_scale)

    def require_scaled(self) -> None:
        """Raise when gradients are about to be unscaled although no loss was scaled."""
        if self.loss_scale != 1.0 and self.scaler.scalings == self._seen_scalings:
            raise StepRefused(
                f"step: no loss was scaled since the last step, but gradients would be divided by {self.loss_scale:g}. "
                "Call opt.backward(loss), or opt.scale_loss(loss).backward()."
            )

    def drop_window(self) -> None:
        """Forget the losses since the last step."""
        self._window_scale = None
        self._finite_losses.clear()
        self._seen_scalings = self.scaler.scalings
        if not self.scaler.is_shared:
            self.scaler.close_window()

    @property
    def losses_finite(self) -> bool:
        """Whether every loss of the present window was finite."""
        return all(bool(finite) for finite in self._finite_losses)

    def reopen_window(self, scale: float, *, losses_finite: bool) -> None:
        """Continue a window whose gradients carry ``scale``."""
        self._window_scale = scale
        self._finite_losses = [torch.tensor(losses_finite)]
        self._seen_scalings = self.scaler.scalings - 1

    @property
    def has_fresh_gradients(self) -> bool:
        """Whether any gradient was computed since the last step."""
        return any(s.param.grad is not None and self._spent.get(s.name) != _mark(s.param) for s in self._table.slots)

    def mark_spent(self) -> None:
        """Take the gradients as they are for stepped or zeroed: none of them is pending."""
        self._spent = {slot.name: _mark(slot.param) for slot in self._table.slots if slot.param.grad is not None}

    def _drop_gradients(self) -> None:
        """Drop gradients that were not stepped: those of weights that change their dtype are lost anyway."""
        if self.has_fresh_gradients:
            _LOG.warning("precision changes in the middle of a window: gradients that were not stepped are dropped")
            for slot in self._table.slots:
                slot.param.grad = None
        self.drop_window()

    def find_pending(self) -> list[str]:
        """Names of parameters whose gradient has been computed but not stepped."""
        with_gradient = [slot for slot in self._table.slots if slot.param.grad is not None]
        open_window = self._window_scale is not None
        return [slot.name for slot in with_gradient if open_window or self._spent.get(slot.name) != _mark(slot.param)]

    def step(self, work: Work, *, member: object) -> StepResult:
        """Judge the gradients, apply or skip them, then let scale and modes move."""
        if self.monitor:
            self.monitor.start_step()
        scale = self.loss_scale
        verdict = judge_gradients([gradient for _, gradient in work])
        nonfinite, bad_loss, blamed = self._consult(verdict, work)
        self.counters.step_count += 1
        self.last_norm = verdict.norm / scale
        if nonfinite or bad_loss:
            result, change = self._skip(work, verdict, blamed=blamed, bad_loss=bad_loss, scale=scale)
        else:
            result, change = self._apply(work, scale=scale)
        self.last_result = result
        self._move_scale(result, member)
        self.drop_window()
        self._spent = {slot.name: _mark(slot.param) for slot, _ in work if slot.param.grad is not None}
        self.enter(self.fallback, change)
        if self.monitor:
            self.monitor.end_step()
        if change.exhausted:
            raise self._exhausted(result)
        return result

    def _consult(self, verdict: Verdict, work: Work) -> tuple[bool, bool, frozenset[int]]:
        """This process's findings joined with those of all others."""
        bad_loss = not self.losses_finite or (not verdict.is_finite and self.scaler.saw_bad_loss)
        blamed = {work[place][0].group for place in verdict.bad}
        flags = [not verdict.is_finite, bad_loss, *(place in blamed for place in range(self._table.group_count))]
        device = work[0][1].device if work else torch.device("cpu")
        nonfinite, bad, *groups = agree_on(flags, group=self._group, device=device)
        return nonfinite, bad, frozenset(place for place, flag in enumerate(groups) if flag)

    def _apply(self, work: Work, *, scale: float) -> tuple[StepResult, ModeChange]:
        coefficient = clip_coefficient(self.last_norm, self._options.clip_norm)
        apply_step(self._table.base, work, scale=scale, coefficient=coefficient)
        self.counters.clip_count += coefficient < 1.0
        self.fallback, change = modes.after_applied(self.fallback, self._options)
        result = StepResult(
            applied=True,
            reason=StepReason.APPLIED,
            grad_norm=self.last_norm,
            scale_used=scale,
            clipped=coefficient < 1.0,
        )
        return result, change

    def _skip(
        self, work: Work, verdict: Verdict, *, blamed: frozenset[int], bad_loss: bool, scale: float
    ) -> tuple[StepResult, ModeChange]:
        names, gradients = [slot.name for slot, _ in work], [gradient for _, gradient in work]
        offenders = name_offenders(names, gradients, verdict)
        reduced = self._table.reduced_groups
        everyone = frozenset(range(self._table.group_count))
        skip = Skip(blamed=everyone if bad_loss else blamed, reduced=reduced)
        if bad_loss:
            reason = StepReason.BAD_LOSS
        elif verdict.is_finite:
            reason = StepReason.OTHER_RANK
        else:
            reason = StepReason.OVERFLOW if blamed & reduced else StepReason.NONFINITE_FP32
        self.counters.skipped_steps += 1
        self.counters.bad_losses += bad_loss
        self.fallback, change = modes.after_skip(self.fallback, skip, self._options)
        self._report_skip(reason, offenders, scale)
        result = StepResult(
            applied=False, reason=reason, grad_norm=self.last_norm, scale_used=scale, offenders=offenders
        )
        return result, change

    def _report_skip(self, reason: StepReason, offenders: tuple[Offender, ...], scale: float) -> None:
        # an FP16 overflow is ordinary business of a dynamic scale; anything else deserves attention
        level = logging.INFO if reason is StepReason.OVERFLOW and self.scaler.is_enabled else logging.WARNING
        who = "; ".join(map(str, offenders[:3])) or "no gradient of this process"
        _LOG.log(level, "step %d skipped: %s at scale %g: %s", self.counters.step_count, reason.value, scale, who)
        if reason is not StepReason.OVERFLOW:
            self._note(reason.value, offenders[0].name if offenders else "")

    def _move_scale(self, result: StepResult, member: object) -> None:
        abstains = self.is_parked or result.reason is StepReason.BAD_LOSS
        move = self.scaler.report(member, had_overflow=None if abstains else not result.applied)
        if move not in (None, ScaleMove.KEPT):
            self._note(move.value, result.offenders[0].name if result.offenders else "")
        if move is ScaleMove.AT_FLOOR:
            _LOG.warning("loss scale is at its floor %g and gradients still overflow", self.scaler.current_scale)

    def _note(self, event: str, detail: str = "") -> None:
        scale = self.scaler.active_scale
        self.timeline.add(ScaleEvent(step=self.counters.step_count, scale=scale, event=event, detail=detail))

    def enter(self, state: FallbackState, change: ModeChange) -> None:
        """Adopt a fallback state and do what its change asks."""
        was_parked = self.is_parked
        unfit = self._table.find_unfit(change.returned, state.fp32_groups) if change.returned else frozenset()
        self.fallback = modes.settle_modes(state, unfit, self._options)
        returned = tuple(place for place in change.returned if place not in unfit)
        if change.fell or returned:
            self._drop_gradients()
            self.use_modes()
        if returned and was_parked:
            attempts = max(self.fallback.groups[place].attempts for place in returned)
            self.scaler.lower_to(self.scaler.state.scale / 2**attempts)
        for event, places in (("fallback", change.fell), ("return", returned), ("trusted", change.trusted)):
            if places:
                self._announce(event, places)
        if unfit:
            self._announce("settled", tuple(sorted(unfit)))

    def use_modes(self) -> None:
        """Give every weight the precision its group is in."""
        self._table.use_modes(self.fallback.fp32_groups)

    def _announce(self, event: str, places: tuple[int, ...]) -> None:
        self._note(event, "groups " + ", ".join(map(str, places)))
        if self._options.log_fallback_events:
            _LOG.warning("%s of parameter groups %s at step %d", event, places, self.counters.step_count)

    def _exhausted(self, result: StepResult) -> NonFiniteTraining:
        who = "; ".join(map(str, result.offenders[:5])) or f"reason {result.reason.value}"
        return NonFiniteTraining(
            f"step {self.counters.step_count}: {self.fallback.fp32_failures} steps in a row are not finite, and FP32 "
            f"cannot cure it: {who}. Lower the learning rate, check the data, or load an earlier checkpoint.",
            offenders=result.offenders,
        )

    def add_group(self) -> None:
        """Take in one more parameter group, in reduced precision."""
        self.fallback = FallbackState(
            groups=(*self.fallback.groups, GroupState()),
            streak=self.fallback.streak,
            fp32_failures=self.fallback.fp32_failures,
        )

    def reset(self) -> None:
        """Zero all counters, reset scaler and timeline, return to reduced precision."""
        self.counters, self.last_result, self.last_norm = Counters(), None, 0.0
        self.scaler.reset()
        self.timeline.clear()
        self._drop_gradients()
        if self.monitor:
            self.monitor.reset()
        self.fallback = FallbackState(groups=(GroupState(),) * self._table.group_count)
        self.use_modes()


def _mark(parameter: torch.nn.Parameter) -> tuple[int, int]:
    gradient = parameter.grad
    return (id(gradient), gradient._version) if gradient is not None else (0, 0)
