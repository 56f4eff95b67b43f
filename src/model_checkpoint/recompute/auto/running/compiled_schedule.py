"""Compiled schedule: a schedule in the form the executor walks, one step per stage."""

from __future__ import annotations

from dataclasses import dataclass

from model_checkpoint.recompute.auto.planning.schedule import Keep, Region, Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledRegion:
    """A region ready to run: which stages, and how they run the second time."""

    start: int
    stop: int
    body: CompiledSchedule
    ahead: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStep:
    """One stage: the regions around it, outermost first, and its mode when it is in none."""

    regions: tuple[CompiledRegion, ...]
    mode: str
    resolves: bool  # it may save tensors that an earlier stage can rebuild


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledSchedule:
    """The steps of a schedule by stage."""

    steps: dict[int, StageStep]


def compile_schedule(schedule: Schedule) -> CompiledSchedule:
    """Lay a schedule out as one step per stage.

    Example:
        >>> body = compile_schedule((Region(start=0, stop=1, body=(Keep(stage=0), Keep(stage=1))), Keep(stage=2)))
        >>> [len(body.steps[stage].regions) for stage in range(3)]
        [1, 1, 0]
    """
    steps: dict[int, StageStep] = {}
    dropped = False
    for node in schedule:
        if isinstance(node, Keep):
            drops = node.mode != "full"
            steps[node.stage] = StageStep(regions=(), mode=node.mode, resolves=drops or dropped)
            dropped = drops
            continue
        part = CompiledRegion(start=node.start, stop=node.stop, body=compile_schedule(node.body), ahead=node.ahead)
        for stage, inner in part.body.steps.items():
            steps[stage] = StageStep(regions=(part, *inner.regions), mode="full", resolves=False)
        dropped = False
    return CompiledSchedule(steps=steps)


def modes_in(schedule: Schedule) -> set[str]:
    """Every mode a schedule uses, at any depth."""
    found: set[str] = set()
    for node in schedule:
        found |= modes_in(node.body) if isinstance(node, Region) else {node.mode}
    return found
