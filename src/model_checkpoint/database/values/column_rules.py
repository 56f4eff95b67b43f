"""Column rules: what each column keeps, and what it refuses before it is sent, on whatever way."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.values.exact_numbers import as_float, as_whole
from model_checkpoint.database.values.json_values import as_text, to_json

ID, NAME, WORD = 64, 250, 32  # characters


class Rule(msgspec.Struct, frozen=True):
    """What a column keeps; a refusal says ``what`` it is of."""

    what: str

    def kept(self, value: Any) -> Any:
        """The value as it is kept, or a refusal."""
        raise NotImplementedError


class TextRule(Rule, frozen=True):
    """Text that every database keeps, of any length or of at most so many characters."""

    most: int | None = None

    def kept(self, value: Any) -> str:
        """The text.

        Example:
            >>> TextRule("status", 32).kept("running")
            'running'
        """
        text = as_text(value, self.what)
        if self.most is not None and len(text) > self.most:
            raise RowRefused(f"{self.what}: at most {self.most} characters, got {len(text)}: {text[:40]!r}...")
        return text


class DataRule(Rule, frozen=True):
    """Plain data, as what a JSON encoder may see."""

    def kept(self, value: Any) -> Any:
        """The data."""
        return to_json(value, self.what)


class WholeRule(Rule, frozen=True):
    """An integer of 64 bits."""

    def kept(self, value: Any) -> int:
        """The number."""
        return as_whole(value, self.what)


class FiniteRule(Rule, frozen=True):
    """A float that is neither NaN nor infinite, such as a time."""

    def kept(self, value: Any) -> float:
        """The number."""
        number = as_float(value, self.what)
        if not math.isfinite(number):
            raise RowRefused(f"{self.what}: must be a finite number, got {number}.")
        return number


RULES: dict[str, dict[str, Rule]] = {  # by table; what is in none is ours, and sound
    "experiments": {
        "id": TextRule("experiment id", ID),
        "name": TextRule("experiment name", NAME),
        "project_name": TextRule("project name", NAME),
        "status": TextRule("status", WORD),
        "start_time": FiniteRule("start time"),
        "end_time": FiniteRule("end time"),
        "step": WholeRule("step"),
        "notes": TextRule("notes"),
        "tags": DataRule("tags"),
        "config": DataRule("config"),
    },
    "heartbeats": {"step": WholeRule("step")},
    "checkpoints": {
        "id": TextRule("checkpoint id", ID),
        "experiment_id": TextRule("experiment id", ID),
        "epoch": WholeRule("epoch"),
        "step": WholeRule("step"),
        "checkpoint_type": TextRule("checkpoint type", WORD),
        "file_path": TextRule("file path"),
        "file_size": WholeRule("file size"),
        "checksum": TextRule("checksum"),
        "model_name": TextRule("model name"),
        "notes": TextRule("notes"),
        "metrics": DataRule("metrics"),
        "metadata": DataRule("metadata"),
        "created_at": FiniteRule("created at"),
        "name": TextRule("name"),
        "root": TextRule("root"),
        "backend": TextRule("backend", NAME),
        "parts": DataRule("parts"),
        "tags": DataRule("tags"),
        "unique_bytes": WholeRule("unique bytes"),
        "health": TextRule("health", WORD),
        "verified_at": FiniteRule("verified at"),
        "state": TextRule("state", WORD),
        "deleted_at": FiniteRule("deleted at"),
    },
    "metric_keys": {"name": TextRule("metric name", NAME)},
    "checkpoint_metrics": {
        "checkpoint_id": TextRule("checkpoint id", ID),
        "experiment_id": TextRule("experiment id", ID),
    },
    "audit_log": {
        "id": TextRule("audit id", ID),
        "at": FiniteRule("time"),
        "actor": TextRule("actor"),
        "action": TextRule("action", WORD),
        "outcome": TextRule("outcome"),
        "subject": TextRule("subject", NAME),
        "details": DataRule("details"),
    },
    "lineage_edges": {
        "parent": TextRule("parent", ID),
        "child": TextRule("child", ID),
        "kind": TextRule("kind", WORD),
        "step": WholeRule("step"),
        "created_at": FiniteRule("created at"),
    },
    "integrity_records": {
        "id": TextRule("integrity id", ID),
        "checkpoint_id": TextRule("checkpoint id", ID),
        "outcome": TextRule("outcome", WORD),
        "method": TextRule("method", WORD),
        "checked_at": FiniteRule("checked at"),
        "seconds": FiniteRule("seconds"),
        "bytes_read": WholeRule("bytes read"),
        "details": DataRule("details"),
    },
    "deletion_intents": {
        "id": TextRule("intent id", ID),
        "checkpoint_id": TextRule("checkpoint id", ID),
        "action": TextRule("action", WORD),
        "plan_id": TextRule("plan id", ID),
        "details": DataRule("details"),
        "created_at": FiniteRule("created at"),
        "finished_at": FiniteRule("finished at"),
        "outcome": TextRule("outcome"),
    },
}
