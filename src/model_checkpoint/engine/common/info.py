"""Info: what a person or program wants to know of one checkpoint at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from model_checkpoint.manifest import Head, Summary, unpack
from model_checkpoint.notebook_html import html_table
from model_checkpoint.options import CheckpointFormat
from model_checkpoint.storage.contract.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One committed checkpoint; ``problem`` is empty unless its manifest cannot be used.

    One with parts ``left_out`` is an incomplete emergency save: it is loaded only if asked for by name, step or id.
    """

    prefix: str
    version: str  # of the format, "1.0.0"
    timestamp: datetime | None
    world_size: int
    size_bytes: int
    format: CheckpointFormat | None
    step: int | None
    id: str
    path: str
    metrics: Mapping[str, Any] = field(default_factory=dict, hash=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    problem: str = ""
    shared_bytes: int = 0  # in files that are one copy with files of other checkpoints
    shared_with: tuple[str, ...] = ()  # the names of those
    left_out: tuple[str, ...] = ()  # parts an emergency save had no time for
    pinned: bool = False  # retention keeps it
    tags: tuple[str, ...] = ()
    note: str = ""
    parity: str = ""  # the scheme it was asked to be protected with: "xor" or "pq"
    protected: bool = False  # whether its parity files are there; only a listing or a description looks
    mirror: str = ""  # the second root it is copied to

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        rows: list[tuple[str, object]] = [
            ("step", "-" if self.step is None else self.step),
            ("saved", "?" if self.timestamp is None else f"{self.timestamp:%Y-%m-%d %H:%M:%S} UTC"),
            ("size", f"{self.size_bytes:,} bytes"),
            ("id", self.id),
            *((f"metric {name}", value) for name, value in self.metrics.items()),
            *((f"metadata {name}", value) for name, value in self.metadata.items()),
        ]
        marks = [*(["pinned"] if self.pinned else []), *self.tags]
        told = {"marks": ", ".join(marks), "note": self.note, "without": ", ".join(self.left_out)}
        rows += [(name, text) for name, text in {**told, "problem": self.problem}.items() if text]
        return html_table(self.path, ["", ""], rows)


def path_of(store: Store, name: str) -> str:
    """Where a checkpoint lies, as text for people."""
    return f"{store.url}/checkpoints/{name}"


def info_of(store: Store, summary: Head | Summary) -> CheckpointInfo:
    """Sum up a manifest."""
    return CheckpointInfo(
        prefix=summary.name,
        version=f"{summary.format_version}.0.0",
        timestamp=datetime.fromisoformat(summary.created),
        world_size=summary.world_size,
        size_bytes=sum(copy.size for copy in summary.copies),
        format=CheckpointFormat(summary.layout),
        step=summary.step,
        id=summary.id,
        path=path_of(store, summary.name),
        metrics=unpack(summary.metrics) or {},
        metadata=unpack(summary.metadata) or {},
        left_out=summary.left_out,
        parity=summary.parity,
        mirror=summary.mirror,
    )


def damaged_info(store: Store, name: str, *, step: int | None, problem: str) -> CheckpointInfo:
    """Stand in for a checkpoint whose manifest cannot be used."""
    return CheckpointInfo(
        prefix=name,
        version="",
        timestamp=None,
        world_size=0,
        size_bytes=sum(store.files(name).values()),
        format=None,
        step=step,
        id="",
        path=path_of(store, name),
        problem=problem,
    )
