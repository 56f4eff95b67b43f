"""Survey: watch one plain training step and note what each stage does besides computing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from model_checkpoint.recompute.auto.common.arguments import flatten_call, leaves_of
from model_checkpoint.recompute.auto.common.errors import ModelRefused
from model_checkpoint.recompute.auto.common.peak import PeakTracker
from model_checkpoint.recompute.auto.measuring.sample import Sample
from model_checkpoint.recompute.auto.measuring.stages import FoundStages, intercepted
from model_checkpoint.recompute.auto.running.stage_call import StageFacts
from model_checkpoint.recompute.common.context import RandomState


@dataclass(slots=True, kw_only=True)
class StageObservation:
    """What was seen of one stage in the plain step; ``begin`` and ``end`` are live bytes around its forward."""

    facts: StageFacts
    begin: int
    end: int
    requires_grad: tuple[bool, ...]


@dataclass(slots=True, kw_only=True)
class StepSurvey:
    """One plain step: its peak, the stages, and the bytes before the first and after the last of them."""

    marks: list[StageObservation] = field(default_factory=list)
    peak: int = 0
    tail_forward: int = 0
    tail_saved: int = 0
    tail_backward: int = 0


class _Surveyor:
    """Runs stages for one tracked step."""

    def __init__(self, found: FoundStages) -> None:
        self.found = found
        self.survey = StepSurvey()
        self.tracker: PeakTracker | None = None
        self.pointer = 0

    def begin(self, tracker: PeakTracker) -> None:
        """The step starts."""
        self.tracker = tracker

    def turn(self) -> None:
        """The forward pass is over."""
        assert self.tracker is not None
        self.survey.tail_forward, self.survey.tail_saved = self.tracker.peak, self.tracker.live

    def call(
        self, module: nn.Module, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a stage and compare everything it could have touched."""
        stage = self.found.stages[self.pointer] if self.pointer < len(self.found.stages) else None
        if stage is None or stage.module is not module or self.tracker is None:
            return original(*args, **kwargs)
        self.pointer += 1
        before = _Before(module, args, kwargs, tracker=self.tracker)
        result = original(*args, **kwargs)
        facts = before.compare(stage.name, linked=stage.linked, shared=self._shared(module))
        flags = tuple(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in before.leaves)
        before.release()
        self.survey.marks.append(
            StageObservation(facts=facts, begin=before.live, end=self.tracker.live, requires_grad=flags)
        )
        self._watch_tail(result)
        return result

    def _shared(self, module: nn.Module) -> bool:
        return sum(stage.module is module for stage in self.found.stages) > 1

    def _watch_tail(self, result: Any) -> None:
        """After the last stage, separate what follows it from the rest."""
        if self.pointer < len(self.found.stages) or self.tracker is None:
            return
        tracker, survey = self.tracker, self.survey
        tracker.reset_peak()

        def arrived(gradient: Tensor) -> None:
            survey.tail_backward = max(survey.tail_backward, tracker.peak)

        for leaf in leaves_of(result):
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                leaf.register_hook(arrived)  # type: ignore[no-untyped-call]


class _Before:
    """Everything a stage could touch, as it was before its call."""

    def __init__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, tracker: PeakTracker
    ) -> None:
        self.live = tracker.live
        self.module, self.tracker = module, tracker
        self.leaves = flatten_call(args, kwargs)[0]
        self.versions = [leaf._version if isinstance(leaf, Tensor) else 0 for leaf in self.leaves]
        self.given = {**{f"argument {number}": value for number, value in enumerate(args)}, **kwargs}
        self.outlines = {label: _outline(value) for label, value in self.given.items()}
        self.buffers = {path: buffer.clone() for path, buffer in module.named_buffers()}
        self.generators = RandomState.capture()
        tracker.collective = False

    def compare(self, name: str, *, linked: bool, shared: bool) -> StageFacts:
        """What is different after the call."""
        self._refuse_changed(name)
        now, generators, drawn = dict(self.module.named_buffers()), self.generators, RandomState.capture()
        written = [
            number
            for number, leaf in enumerate(self.leaves)
            if isinstance(leaf, Tensor) and leaf._version != self.versions[number]
        ]
        return StageFacts(
            name=name,
            linked=linked,
            shared=shared,
            draws=(drawn.torch, drawn.cuda) != (generators.torch, generators.cuda),
            draws_python=(drawn.python, drawn.numpy) != (generators.python, generators.numpy),
            writes=tuple(written),
            buffers=tuple(path for path, old in self.buffers.items() if not _same_bits(now[path], old)),
            collective=self.tracker.collective,
        )

    def release(self) -> None:
        """Let go of everything, so that the next bytes counted are the model's own."""
        self.buffers.clear()
        self.given.clear()
        self.leaves = []

    def _refuse_changed(self, name: str) -> None:
        """A second run must find its arguments as the first found them."""
        for label, value in self.given.items():
            if _outline(value) != self.outlines[label]:
                raise ModelRefused(
                    f"{name}: the layer changes its {label} ({type(value).__name__}), expected arguments that stay "
                    "as they are. Turn caching off (use_cache=False) or return the new value instead."
                )


def survey_step(sample: Sample, found: FoundStages) -> StepSurvey:
    """Run plain steps under the tracker and return what was seen; call it inside ``sample.untouched()``."""
    surveyor = _Surveyor(found)
    with intercepted([stage.module for stage in found.stages], surveyor.call):
        sample.tracked_step(surveyor)
    survey = surveyor.survey
    if len(survey.marks) != len(found.stages):
        missed = found.stages[len(survey.marks)].name
        raise ModelRefused(f"{missed}: the second forward did not call it as the first. Plan a model that is static.")
    end = survey.marks[-1].end
    survey.tail_forward = max(survey.tail_forward - end, 0)
    survey.tail_saved = max(survey.tail_saved - end, 0)
    survey.tail_backward = max(survey.tail_backward - end, survey.tail_saved)
    # once more without the watching, whose copies are counted too
    survey.peak = sample.tracked_step().peak
    return survey


def _same_bits(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a.numel() == 0 or torch.equal(_bytes(a), _bytes(b))


def _bytes(tensor: Tensor) -> Tensor:
    whole = tensor.contiguous()  # as a lone element is with any stride
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)


def _outline(value: Any, depth: int = 4) -> Any:
    """What a call could change in an argument besides tensor contents, which versions tell."""
    if depth == 0 or isinstance(value, (Tensor, nn.Module, type)):
        return id(value)
    if isinstance(value, dict):
        return {key: _outline(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_outline(item, depth - 1) for item in value]
    fields = getattr(value, "__dict__", None)
    if callable(value) or not isinstance(fields, dict):
        return id(value)
    return {key: _outline(item, depth - 1) for key, item in fields.items()}
