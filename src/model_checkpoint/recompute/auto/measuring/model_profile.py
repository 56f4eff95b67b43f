"""Model profile: a model measured once on a sample, to be asked for plans of any budget."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from torch import nn

from model_checkpoint.recompute.auto.common.agreement import agree_with_first
from model_checkpoint.recompute.auto.common.clock import ticks
from model_checkpoint.recompute.auto.common.errors import AutoCheckpointWarning
from model_checkpoint.recompute.auto.common.overlap import measure_overlap
from model_checkpoint.recompute.auto.common.run_options import RunOptions
from model_checkpoint.recompute.auto.measuring.profile import profile_chain
from model_checkpoint.recompute.auto.measuring.sample import LentSample, Sample
from model_checkpoint.recompute.auto.measuring.stages import FoundStages, find_stages
from model_checkpoint.recompute.auto.measuring.survey import StepSurvey, survey_step
from model_checkpoint.recompute.auto.planning.calibrate import Calibration
from model_checkpoint.recompute.auto.planning.forecast import Lanes
from model_checkpoint.recompute.auto.planning.outline import outline_of
from model_checkpoint.recompute.auto.planning.pareto import ParetoRow
from model_checkpoint.recompute.auto.planning.plan import StageLine
from model_checkpoint.recompute.auto.planning.planner import Chain
from model_checkpoint.recompute.auto.planning.schedule import Schedule
from model_checkpoint.recompute.auto.running.run_resources import RunResources
from model_checkpoint.recompute.auto.running.runtime import Runtime
from model_checkpoint.recompute.auto.running.stage_call import StageCall, StageFacts
from model_checkpoint.recompute.auto.running.torch_regions import TorchRegions
from model_checkpoint.recompute.auto.saving.offload import Offloader


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One model measured once: budgets asked of the same profile are answered monotonically."""

    sample: LentSample
    found: FoundStages
    survey: StepSurvey
    chain: Chain
    calibration: Calibration
    plain_seconds: float
    options: RunOptions

    @property
    def facts(self) -> list[StageFacts]:
        """What each stage does besides computing."""
        return [mark.facts for mark in self.survey.marks]

    def check(self, options: RunOptions) -> None:
        """Refuse to be asked for plans that run otherwise than what was measured."""
        asked, measured = _manner(options), _manner(self.options)
        if asked != measured:
            raise ValueError(f"profile: made with {measured}, got {asked}. Pass the same, or leave the profile out.")

    def lines(self) -> tuple[StageLine, ...]:
        """The stages as a plan lists them."""
        return tuple(
            StageLine(
                **asdict(fact),
                outline=outline_of(found.module),
                saved_bytes=stage.modes[0].saved,
                output_bytes=stage.output,
                forward_seconds=stage.modes[0].forward,
            )
            for fact, found, stage in zip(self.facts, self.found.stages, self.chain.stages, strict=False)
        )

    def front(self) -> tuple[ParetoRow, ...]:
        """Predicted points of the table and the measured candidates, by size."""
        calibration, base = self.calibration, self.survey.marks[0].begin
        plain = calibration.plain
        points = [(base + p.bytes, calibration.seconds(p), False) for p in calibration.points]
        points += [(c.peak, c.seconds, True) for c in calibration.candidates]
        return tuple(
            ParetoRow(
                bytes=size, share=size / max(plain.peak, 1), slowdown=seconds / max(plain.seconds, 1e-12), measured=run
            )
            for size, seconds, run in sorted(points)
        )


def _manner(options: RunOptions) -> str:
    return f"executor={options.executor!r}, prefetch={options.prefetch}, offload={options.offload!r}"


def profile_model(sample: Sample, options: RunOptions) -> Profile:
    """Look at the model, run a plain step, measure the stages, plan; leaves no trace in the model."""
    with sample.untouched():
        found = find_stages(sample.model, sample.forward, blocks=options.executor == "torch")
        survey = survey_step(sample, found)
        facts = [mark.facts for mark in survey.marks]
        chain = agree_with_first(_measured_chain(sample, found, survey, options))
        busy = agree_with_first(
            timed_step(sample, wall=False)
        )  # by the clock of the stages: what others do meanwhile is no cost
        plain = timed_step(sample, wall=True) if options.lanes else busy
    _warn_of_no_chain(sample.model, found)
    lent = LentSample(sample)
    calibration = Calibration(
        chain,
        base=survey.marks[0].begin,
        plain_peak=agree_with_first(survey.peak),
        plain_seconds=busy,
        measure=_measurer(lent, facts, found, options=options),
        lanes=Lanes(overlap=agree_with_first(measure_overlap()), prefetch=options.prefetch) if options.lanes else None,
    )
    return Profile(
        sample=lent,
        found=found,
        survey=survey,
        chain=chain,
        calibration=calibration,
        plain_seconds=plain,
        options=options,
    )


def _warn_of_no_chain(model: nn.Module, found: FoundStages) -> None:
    if not found.chain:
        warnings.warn(
            f"{type(model).__name__}: not seen as a chain of layers; its {len(found.stages)} modules become "
            "single regions, which saves less. Put repeated layers into nn.Sequential or nn.ModuleList.",
            AutoCheckpointWarning,
            stacklevel=4,
        )


def _measured_chain(sample: Sample, found: FoundStages, survey: StepSurvey, options: RunOptions) -> Chain:
    """What the stages cost in every mode that the executor has."""
    facts = [mark.facts for mark in survey.marks]
    modes = ["full"]
    if options.executor == "native":
        modes += ["drop"]
        modes += ["drop+masks"] if any(fact.draws for fact in facts) else []
        modes += [options.offload] if options.offload else []
    resources = RunResources(offloader=Offloader(options.spill_dir) if options.offload else None)
    try:
        chain = profile_chain(sample, _calls(facts, found), survey, resources=resources, modes=modes)
    finally:
        resources.close()
    return chain if options.executor == "native" else _flat(chain, facts)


def _flat(chain: Chain, facts: Sequence[StageFacts]) -> Chain:
    """The chain of an executor that runs again single stages only, and those only that need no help for it."""
    stages = [
        replace(stage, linked=False, recomputable=stage.recomputable and fact.repeatable)
        for stage, fact in zip(chain.stages, facts, strict=False)
    ]
    return replace(chain, stages=(*stages, *chain.stages[len(stages) :]))


def _calls(facts: Sequence[StageFacts], found: FoundStages) -> list[StageCall]:
    return [StageCall(i, f, s.module) for i, (f, s) in enumerate(zip(facts, found.stages, strict=True))]


def make_executor(
    model: nn.Module, facts: Sequence[StageFacts], found: FoundStages, *, options: RunOptions
) -> Runtime | TorchRegions:
    """Whoever runs a schedule of this model the way the options say."""
    if options.executor == "torch":
        named = [(fact.name, stage.module) for fact, stage in zip(facts, found.stages, strict=True)]
        return TorchRegions(model, named, determinism=options.determinism)
    offloader = Offloader(options.spill_dir) if options.offload else None
    return Runtime(
        model,
        _calls(facts, found),
        determinism=options.determinism,
        prefetch=options.prefetch,
        offloader=offloader,
    )


def _measurer(
    lent: LentSample, facts: list[StageFacts], found: FoundStages, *, options: RunOptions
) -> Callable[[Schedule], int]:
    """A function that runs one step by a schedule under the tracker."""

    def measure(schedule: Schedule) -> int:
        sample = lent.borrow()
        executor = make_executor(sample.model, facts, found, options=options)
        executor.use(schedule)
        with sample.untouched(), executor:
            peak = sample.tracked_step().peak
        return agree_with_first(peak + executor.overlap)

    return measure


def timed_step(sample: Sample, *, wall: bool, rounds: int = 2) -> float:
    """The shortest of a few plain or patched steps, in CPU seconds or by the clock."""
    spent = []
    for _ in range(rounds):
        start = ticks(wall=wall)
        sample.step()
        spent.append(ticks(wall=wall) - start)
    return min(spent)
