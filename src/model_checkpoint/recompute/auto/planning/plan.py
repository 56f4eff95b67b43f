"""Plan: what was decided for a model, why, and how well it was predicted; a value that JSON can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from model_checkpoint.notebook_html import html_table
from model_checkpoint.recompute.auto.common.errors import PlanMismatch
from model_checkpoint.recompute.auto.planning.pareto import Pareto, ParetoRow
from model_checkpoint.recompute.auto.planning.schedule import (
    Keep,
    Region,
    Schedule,
    decode_schedule,
    describe_schedule,
    encode_schedule,
)

_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLine:
    """One stage of the model: what it does besides computing, and what it costs."""

    name: str
    linked: bool = True
    draws: bool = False
    draws_python: bool = False
    writes: tuple[int, ...] = ()
    buffers: tuple[str, ...] = ()
    collective: bool = False
    shared: bool = False
    outline: str = ""
    saved_bytes: int = 0
    output_bytes: int = 0
    forward_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A schedule with its figures; ``model.plan`` after :func:`auto_checkpoint`."""

    schedule: Schedule
    stages: tuple[StageLine, ...]
    outline: str  # of the model around its stages
    chain: bool
    budget_bytes: int
    peak_bytes: int
    predicted_bytes: int
    floor_bytes: int
    plain_bytes: int
    predicted_seconds: float
    measured_seconds: float
    plain_seconds: float
    input_bytes: int
    executor: str = "native"
    determinism: str = "metadata"
    prefetch: bool = False
    offload: str | None = None
    training: bool = True  # the mode the model was profiled in
    front: tuple[ParetoRow, ...] = ()
    profile: Any = field(default=None, repr=False, compare=False)
    on_remove: Callable[[], None] | None = field(default=None, repr=False, compare=False)
    statistics: Any = field(default=None, repr=False, compare=False)

    @property
    def plain(self) -> bool:
        """Whether this is plain training: everything kept as it is."""
        return all(isinstance(node, Keep) and node.mode == "full" for node in self.schedule)

    def fates(self) -> list[str]:
        """Per stage: ``kept``, ``dropped`` (in part, rebuilt cheaply), ``offloaded`` or ``recomputed``."""
        found = ["kept"] * len(self.stages)
        for node in self.schedule:
            if isinstance(node, Region):
                found[node.start : node.stop + 1] = ["recomputed"] * (node.stop + 1 - node.start)
            elif node.mode.startswith("drop"):
                found[node.stage] = "dropped"
            elif node.mode != "full":
                found[node.stage] = "offloaded"
        return found

    def explain(self) -> str:
        """Say in plain text what happens to each stage, and what was predicted and measured."""
        runs = _forward_runs(self.schedule, len(self.stages))
        width = max(len(stage.name) for stage in self.stages)
        lines = [
            f"budget {_mb(self.budget_bytes)}, floor {_mb(self.floor_bytes)}, plain training {_mb(self.plain_bytes)}",
            f"peak   {_mb(self.peak_bytes)} measured, {_mb(self.predicted_bytes)} predicted",
            f"step   {self.measured_seconds * 1e3:.1f} ms measured, {self.predicted_seconds * 1e3:.1f} ms predicted, "
            f"{self.plain_seconds * 1e3:.1f} ms plain",
            f"plan   {describe_schedule(self.schedule)}",
        ]
        if self.prefetch:
            early = [node.start for node in self.schedule if isinstance(node, Region) and node.ahead]
            lines.append(
                f"ahead  regions run before backward asks: {', '.join(map(str, early)) or 'none'} (first stage)"
            )
        if self.executor == "torch":
            lines.append("note   regions of torch.utils.checkpoint: each stage is kept, or run again on its own")
        if not self.chain:
            lines.append("note   the model is no chain of layers: regions are single modules")
        for stage, fate, count in zip(self.stages, self.fates(), runs, strict=True):
            lines.append(
                f"  {stage.name:{width}s}  {fate:10s}  forward runs {count}  saves {_mb(stage.saved_bytes)}, "
                f"output {_mb(stage.output_bytes)}, {stage.forward_seconds * 1e3:.2f} ms"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """How a notebook shows it: what it costs, and what becomes of each stage."""
        title = (
            f"memory plan: peak {_mb(self.peak_bytes)} of {_mb(self.budget_bytes)}, plain {_mb(self.plain_bytes)}; "
            f"step {self.measured_seconds * 1e3:.1f} ms, plain {self.plain_seconds * 1e3:.1f} ms"
        )
        rows = [
            (stage.name, fate, _mb(stage.saved_bytes), f"{stage.forward_seconds * 1e3:.2f} ms")
            for stage, fate in zip(self.stages, self.fates(), strict=True)
        ]
        return html_table(title, ["stage", "", "saves", "forward"], rows)

    def pareto(self) -> Pareto:
        """Budgets against time for this model: predicted along the front, measured where plans were run."""
        return Pareto(rows=self.front)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint; :meth:`from_dict` is the way back."""
        skipped = {"schedule", "stages", "front", "profile", "on_remove", "statistics"}
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in skipped}
        return {
            "version": _VERSION,
            "schedule": encode_schedule(self.schedule),
            "stages": [_plain(asdict(stage)) for stage in self.stages],
            "front": [asdict(row) for row in self.front],
            **values,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """Rebuild a plan from what :meth:`to_dict` made."""
        if data.get("version") != _VERSION:
            raise PlanMismatch(f"plan: version is {data.get('version')!r}, expected {_VERSION}. Plan the model again.")
        values = {key: value for key, value in data.items() if key != "version"}
        values["schedule"] = decode_schedule(data["schedule"])
        values["stages"] = tuple(
            StageLine(**{**stage, "writes": tuple(stage["writes"]), "buffers": tuple(stage["buffers"])})
            for stage in data["stages"]
        )
        values["front"] = tuple(ParetoRow(**row) for row in data["front"])
        return cls(**values)

    def check_stages(self, names: Sequence[str]) -> None:
        """Refuse a model that calls its stages otherwise than planned."""
        planned = [stage.name for stage in self.stages]
        if planned != list(names):
            differing = next((a for a, b in zip(planned, names, strict=False) if a != b), f"{len(planned)} stages")
            raise PlanMismatch(
                f"plan: made for other layers: the first difference is at {differing!r} "
                f"({len(planned)} calls planned, the model makes {len(names)}). Plan this model anew."
            )

    def remove(self) -> None:
        """Undo the patch: the model trains plainly again."""
        if self.on_remove is not None:
            self.on_remove()

    def __getstate__(self) -> dict[str, Any]:
        # a copy of a model is a plain model: its plan keeps the figures, not the resources
        return {**self.__dict__, "profile": None, "on_remove": None, "statistics": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Plan:
        return Plan(**self.__getstate__())


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _mb(size: int) -> str:
    return f"{size / 1e6:.2f} MB"


def _forward_runs(schedule: Schedule, count: int) -> list[int]:
    """How often each stage's forward runs in one step."""
    runs = [0] * count
    for node in schedule:
        if isinstance(node, Keep):
            runs[node.stage] += 1
            continue
        for stage, again in enumerate(_forward_runs(node.body, count)):
            runs[stage] += again + (node.start <= stage <= node.stop)
    return runs
