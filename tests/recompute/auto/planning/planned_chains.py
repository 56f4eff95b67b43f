"""Random chains, all their schedules, and what running one takes, event by event."""

import dataclasses

from model_checkpoint.recompute.auto.planning.planner import Chain, Mode, Stage
from model_checkpoint.recompute.auto.planning.schedule import Keep, Region, stages_of


def random_stage(rng, modes=1):
    output = rng.randint(1, 8)
    saved = output + rng.randint(0, 12)
    forward = rng.randint(1, 10)
    full = Mode(
        name="full",
        forward=forward,
        backward=2 * forward,
        saved=saved,
        forward_peak=saved + rng.randint(0, 3),
        backward_peak=saved + output + rng.randint(0, 6),
    )
    options = [full]
    if modes > 1:
        frees = rng.random() < 0.5
        options.append(
            Mode(
                name="drop",
                forward=forward,
                backward=2 * forward + 1,
                saved=max(saved - output - rng.randint(0, 3), 0) if frees else max(output, saved - 4),
                forward_peak=full.forward_peak,
                backward_peak=full.backward_peak + 1,
                frees_output=frees,
                rebuild=rng.randint(0, 2) if frees else 0,
            )
        )
    return Stage(
        output=output, gradient=output, bare=forward, bare_peak=output + rng.randint(0, 3), modes=tuple(options)
    )


def random_chain(rng, length, modes=1):
    return Chain(stages=tuple(random_stage(rng, modes) for _ in range(length)))


def broken_chain(rng, length, modes):
    """A chain with broken links, stages that must not run again or need much to run, and regions that cost."""
    stages = [
        dataclasses.replace(
            stage,
            linked=rng.random() < 0.8,
            recomputable=rng.random() < 0.8,
            bare_peak=stage.bare_peak + rng.choice([0, 20]),
        )
        for stage in random_chain(rng, length, modes).stages
    ]
    return Chain(stages=tuple(stages), region_cost=rng.randint(0, 2))


def every_schedule(first, last, modes):
    """All keep/recompute trees over stages first..last."""
    for mode in modes[first]:
        head = Keep(stage=first, mode=mode)
        if first == last:
            yield (head,)
        else:
            yield from ((head, *rest) for rest in every_schedule(first + 1, last, modes))
    for stop in range(first, last):
        for body in every_schedule(first, stop, modes):
            region = Region(start=first, stop=stop, body=body)
            yield from ((region, *rest) for rest in every_schedule(stop + 1, last, modes))


def may_run(chain, schedule):
    """Whether every region holds only stages that may run again, each linked to the next."""
    spans = [chain.stages[region.start : region.stop + 1] for region in regions(schedule)]
    return all(all(s.recomputable for s in span) and all(s.linked for s in span[:-1]) for span in spans)


def simulate(chain, schedule, *, base=0, missing=0, rebuild=0.0):
    """Run a schedule event by event: (seconds, peak bytes).

    ``missing`` is the size of an input that nobody holds and that takes ``rebuild`` seconds to have again.
    """
    stages = chain.stages
    last = stages_of(schedule)[-1]
    gradient = stages[last].gradient if last < len(stages) - 1 else 0
    node, rest = schedule[0], schedule[1:]
    seconds, peak = rebuild, 0
    if isinstance(node, Keep):
        stage = stages[node.stage]
        mode = next(m for m in stage.modes if m.name == node.mode)
        peak = base + missing + max(mode.forward_peak + gradient, mode.backward_peak)
        seconds += mode.forward + mode.backward
        if rest and mode.frees_output and stage.linked:
            after = simulate(chain, rest, base=base + mode.saved, missing=stage.output, rebuild=mode.rebuild)
        elif rest and mode.frees_output:  # the next stage takes something else, so the output stays
            after = simulate(chain, rest, base=base + mode.saved + stage.output)
        elif rest:
            after = simulate(chain, rest, base=base + mode.saved)
        else:
            after = (0.0, 0)
        return seconds + after[0], max(peak, after[1])
    for index in range(node.start, node.stop + 1):
        carried = stages[index - 1].output if index > node.start else 0
        peak = max(peak, base + missing + gradient + carried + stages[index].bare_peak)
        seconds += stages[index].bare
    seconds += chain.region_cost
    after = simulate(chain, rest, base=base + stages[node.stop].output)
    again = simulate(chain, node.body, base=base + missing)
    return seconds + after[0] + again[0], max(peak, after[1], again[1])


def regions(schedule):
    for node in schedule:
        if isinstance(node, Region):
            yield node
            yield from regions(node.body)
