"""Managed save: what is saved under which name, and what the manifest remembers of it.

The manifest is the truth: everything the catalog knows of a checkpoint can be read from it again.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from model_checkpoint.database.records import Experiment
from model_checkpoint.errors import OptionInvalid

_SLUG = re.compile(r"[^A-Za-z0-9]+")
_LONGEST = 60
RESERVED = ("catalog", "config")  # of the metadata of a manifest or row


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedSave:
    """One call of ``save_checkpoint``, apart from the state.

    Example:
        >>> order = ManagedSave(id="0" * 32, experiment=Experiment(id="e1", name="a run!"), loss=0.5)
        >>> order.name[:12], order.measured
        ('a-run-000000', {'loss': 0.5})
    """

    experiment: Experiment
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    epoch: int | None = None
    step: int | None = None
    loss: float | None = None
    val_loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    notes: str = ""
    model_name: str = ""
    checkpoint_type: str = "manual"
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    update_best: bool = True  # whether it may become the best
    best_metric: str | None = None  # what the best metric is, as far as its manager was told
    compute_checksum: bool = True  # whether it is looked at once more, and its row gets a checksum

    def __post_init__(self) -> None:
        _refuse_nonsense(self)

    @property
    def name(self) -> str:
        """The folder: which run it is of, for people, and an id that nobody else has."""
        return f"{_SLUG.sub('-', self.experiment.name).strip('-')[:_LONGEST] or 'run'}-{self.id}"

    @property
    def number(self) -> int | None:
        """The step that orders it; the epoch where no step was given."""
        return self.epoch if self.step is None else self.step

    @property
    def measured(self) -> dict[str, float]:
        """All numbers it can be chosen by."""
        losses = {"loss": self.loss, "val_loss": self.val_loss}
        return {**self.metrics, **{name: value for name, value in losses.items() if value is not None}}

    def remembered(self, *, backend: str, parts: Sequence[str]) -> dict[str, Any]:
        """What the manifest keeps, so that a lost catalog can be built anew; what is empty is not written."""
        run = self.experiment
        known = {
            "experiment_id": run.id,
            "experiment_name": run.name,
            "project_name": run.project_name,
            "experiment_tags": list(run.tags),
            "epoch": self.epoch,
            "checkpoint_type": self.checkpoint_type,
            "model_name": self.model_name,
            "notes": self.notes,
            "config": dict(self.config),
            "tags": list(self.tags),
            "backend": backend,
            "parts": list(parts),
            "best_metric": self.best_metric,
            "contends": None if self.update_best else False,
        }
        return {**self.metadata, "catalog": {name: value for name, value in known.items() if value or value == 0}}


def _refuse_nonsense(order: ManagedSave) -> None:
    """Refuse by name what would be lost or misread, whether a caller gave it or a hook."""
    for name in ("metrics", "metadata", "config"):
        if not isinstance(getattr(order, name), Mapping):
            raise OptionInvalid(f"{name} is a mapping, got {getattr(order, name)!r:.60}. Nothing was saved.")
    if isinstance(order.tags, str) or not isinstance(order.tags, (Sequence, Set)):
        raise OptionInvalid(
            f"tags are several texts, e.g. tags=['release'], got {order.tags!r:.60}. Nothing was saved."
        )
    wrong = [tag for tag in order.tags if not isinstance(tag, str) or not tag.strip()]
    if wrong:
        raise OptionInvalid(f"a tag is a text, got {wrong[0]!r:.60}. Nothing was saved.")
    if not isinstance(order.notes, str):
        raise OptionInvalid(f"notes are a text, got {order.notes!r:.60}. Nothing was saved.")
    taken = [name for name in RESERVED if name in order.metadata]
    if taken:
        raise OptionInvalid(
            f"metadata: {taken[0]!r} is where the manager keeps its own; call it something else, or give config=. "
            "Nothing was saved."
        )
