"""Fallback: which parameter groups left reduced precision for FP32, and when they may come back.

A pure state machine. LOW --(too many skips in a row)--> FP32 --(clean steps)--> PROBATION --(clean steps)--> LOW.
A fall out of probation doubles the clean steps the next attempt needs; after ``max_recoveries`` attempts a group
stays in FP32.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from model_checkpoint.precision.settings.precision_options import MixedPrecisionOptions


class GroupMode(Enum):
    """How one parameter group trains."""

    LOW = "low"
    FP32 = "fp32"
    PROBATION = "probation"  # in reduced precision again, but one fall counts more


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """One group's mode and history."""

    mode: GroupMode = GroupMode.LOW
    attempts: int = 0  # falls since the last trusted period in LOW
    clean_steps: int = 0  # applied steps in the present mode
    offences: int = 0  # skips it caused in the present streak

    @property
    def is_fp32(self) -> bool:
        """Whether it trains in FP32 now."""
        return self.mode is GroupMode.FP32


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackState:
    """All groups, and the streaks that decide about them."""

    groups: tuple[GroupState, ...] = ()
    streak: int = 0  # skipped steps in a row
    fp32_failures: int = 0  # skipped steps in a row that FP32 could not have cured

    @property
    def fp32_groups(self) -> frozenset[int]:
        """Places of the groups that train in FP32 now."""
        return frozenset(place for place, group in enumerate(self.groups) if group.is_fp32)

    @property
    def any_fp32(self) -> bool:
        """Whether any group has fallen back."""
        return any(group.is_fp32 for group in self.groups)

    def to_tree(self) -> dict[str, Any]:
        """Plain values."""
        groups = [{**asdict(group), "mode": group.mode.value} for group in self.groups]
        return {"groups": groups, "streak": self.streak, "fp32_failures": self.fp32_failures}

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> FallbackState:
        """The state a tree describes."""
        groups = tuple(GroupState(**{**group, "mode": GroupMode(group["mode"])}) for group in tree["groups"])
        return cls(groups=groups, streak=int(tree["streak"]), fp32_failures=int(tree["fp32_failures"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChange:
    """What has to be done after a step."""

    fell: tuple[int, ...] = ()
    returned: tuple[int, ...] = ()
    trusted: tuple[int, ...] = ()
    exhausted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Why a step was not applied: the groups to blame, and which of those run in reduced precision."""

    blamed: Set[int] = field(default_factory=frozenset)
    reduced: Set[int] = field(default_factory=frozenset)


def after_applied(state: FallbackState, options: MixedPrecisionOptions) -> tuple[FallbackState, ModeChange]:
    """The state after an applied step.

    Example:
        >>> fallen = FallbackState(groups=(GroupState(mode=GroupMode.FP32, attempts=1),))
        >>> after_applied(fallen, MixedPrecisionOptions(recovery_steps=1))[1].returned
        (0,)
    """
    groups: list[GroupState] = []
    returned: list[int] = []
    trusted: list[int] = []
    for place, group in enumerate(state.groups):
        cleaner = replace(group, clean_steps=group.clean_steps + 1, offences=0)
        if group.mode is not GroupMode.LOW and _has_earned(cleaner, options):
            (returned if group.is_fp32 else trusted).append(place)
            cleaner = GroupState(mode=GroupMode.PROBATION, attempts=group.attempts) if group.is_fp32 else GroupState()
        groups.append(cleaner)
    return FallbackState(groups=tuple(groups)), ModeChange(returned=tuple(returned), trusted=tuple(trusted))


def _has_earned(group: GroupState, options: MixedPrecisionOptions) -> bool:
    if options.recovery_steps == 0 or group.attempts > options.max_recoveries:
        return False
    needed: int = options.recovery_steps << max(group.attempts - 1, 0)
    return group.clean_steps >= needed


def after_skip(state: FallbackState, skip: Skip, options: MixedPrecisionOptions) -> tuple[FallbackState, ModeChange]:
    """The state after a skipped step.

    Example:
        >>> state = FallbackState(groups=(GroupState(),))
        >>> skip = Skip(blamed={0}, reduced={0})
        >>> after_skip(state, skip, MixedPrecisionOptions(max_consecutive_overflows=1))[1].fell
        (0,)
    """
    groups = tuple(
        replace(group, offences=group.offences + 1, clean_steps=0) if place in skip.blamed else group
        for place, group in enumerate(state.groups)
    )
    counted = replace(state, groups=groups, streak=state.streak + 1)
    if not skip.blamed & skip.reduced:
        failures = state.fp32_failures + 1
        return replace(counted, fp32_failures=failures), ModeChange(exhausted=failures >= options.max_fp32_failures)
    counted = replace(counted, fp32_failures=0)
    if not options.enable_auto_fallback or counted.streak < options.max_consecutive_overflows:
        return counted, ModeChange()
    return fall(counted, {place for place, group in enumerate(groups) if group.offences and place in skip.reduced})


def fall(state: FallbackState, places: Set[int]) -> tuple[FallbackState, ModeChange]:
    """The state after the groups at ``places`` went to FP32; those already there stay as they are."""
    falling = tuple(sorted(place for place in places if not state.groups[place].is_fp32))
    groups = tuple(
        GroupState(mode=GroupMode.FP32, attempts=group.attempts + 1) if place in falling else replace(group, offences=0)
        for place, group in enumerate(state.groups)
    )
    return FallbackState(groups=groups), ModeChange(fell=falling)


def spread(state: FallbackState, groups: int) -> FallbackState:
    """The state for ``groups`` groups; one that knows another number, as an old file does, has one mode for all.

    Example:
        >>> len(spread(FallbackState(groups=(GroupState(),)), 3).groups)
        3
    """
    if len(state.groups) == groups:
        return state
    one = state.groups[0] if state.groups else GroupState()
    return replace(state, groups=(one,) * groups)


def settle_modes(state: FallbackState, places: Set[int], options: MixedPrecisionOptions) -> FallbackState:
    """The state in which the groups at ``places`` stay in FP32 for good."""
    groups = tuple(
        GroupState(mode=GroupMode.FP32, attempts=options.max_recoveries + 1) if place in places else group
        for place, group in enumerate(state.groups)
    )
    return replace(state, groups=groups)
