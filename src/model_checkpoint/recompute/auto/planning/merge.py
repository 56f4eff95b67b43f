"""Merge: join neighbouring stages of a long chain so that planning stays quick."""

from __future__ import annotations

from collections.abc import Sequence

from model_checkpoint.recompute.auto.planning.planner import Chain, Mode, Stage, lone_bytes


def merge_chain(chain: Chain, *, limit: int = 48) -> tuple[Chain, list[range]]:
    """Return a chain of at most about ``limit`` stages, and which stages each of them stands for.

    Stages are joined only along links, in groups of about equal saved bytes.

    Example:
        >>> mode = Mode(name="full", forward=1, backward=2, saved=10, forward_peak=10, backward_peak=14)
        >>> stage = Stage(output=4, gradient=4, bare=1, bare_peak=4, modes=(mode,))
        >>> short, groups = merge_chain(Chain(stages=(stage,) * 6), limit=3)
        >>> groups, short.stages[0].modes[0].saved
        ([range(0, 2), range(2, 4), range(4, 6)], 20)
    """
    if len(chain.stages) <= limit:
        return chain, [range(i, i + 1) for i in range(len(chain.stages))]
    groups = _group(chain.stages, limit)
    merged = tuple(_join([chain.stages[i] for i in group]) for group in groups)
    return Chain(stages=merged, region_cost=chain.region_cost), groups


def _group(stages: Sequence[Stage], limit: int) -> list[range]:
    """Cut the chain where links break or where a group has its share of bytes and of stages."""
    share = sum(stage.modes[0].saved for stage in stages) / limit
    most = -(-len(stages) // limit)
    groups, start, size = [], 0, 0
    for index, stage in enumerate(stages):
        size += stage.modes[0].saved
        free = stage.linked and stage.recomputable and index + 1 < len(stages) and stages[index + 1].recomputable
        full = size >= share and index + 1 - start >= most
        if not free or full or index + 1 - start >= 2 * most:
            groups.append(range(start, index + 1))
            start, size = index + 1, 0
    return groups


def _join(stages: Sequence[Stage]) -> Stage:
    """The costs of running ``stages`` one after the other as one."""
    if len(stages) == 1:
        return stages[0]
    names = set.intersection(*({mode.name for mode in stage.modes} for stage in stages))
    modes = [_join_mode(stages, mode.name) for mode in stages[0].modes if mode.name in names]
    peak = max((stages[i - 1].output if i else 0) + s.bare_peak for i, s in enumerate(stages))
    return Stage(
        output=stages[-1].output,
        gradient=stages[-1].gradient,
        bare=sum(stage.bare for stage in stages),
        bare_peak=peak,
        modes=tuple(modes),
        linked=stages[-1].linked,
        recomputable=all(stage.recomputable for stage in stages),
        ahead=all(stage.ahead for stage in stages),
    )


def _join_mode(stages: Sequence[Stage], name: str) -> Mode:
    """Keep every stage of the group in the mode called ``name``."""
    modes = [next(mode for mode in stage.modes if mode.name == name) for stage in stages]
    held = forward_peak = backward_peak = 0
    for position, mode in enumerate(modes):
        before = stages[position - 1].output if position and modes[position - 1].frees_output else 0
        waiting, early = (modes[position - 1].moved, modes[position - 1].fetched) if position else (0, 0)
        forward_peak = max(forward_peak, held + before + waiting + mode.forward_peak)
        backward_peak = max(backward_peak, held + before + early + mode.backward_peak)
        held += mode.saved
    return Mode(
        name=name,
        forward=sum(mode.forward for mode in modes),
        backward=sum(mode.backward for mode in modes) + sum(mode.rebuild for mode in modes[:-1]),
        saved=held,
        forward_peak=forward_peak,
        backward_peak=backward_peak,
        frees_output=modes[-1].frees_output,
        rebuild=modes[-1].rebuild,
        alone=held - modes[-1].saved + lone_bytes(modes[-1]),
        moved=modes[-1].moved,
        fetched=modes[-1].fetched,
        write=sum(mode.write for mode in modes),
        read=sum(mode.read for mode in modes),
    )
