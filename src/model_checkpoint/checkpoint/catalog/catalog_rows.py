"""Catalog rows: what was just saved, or a manifest found in a root, becomes a row of the catalog."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Any

from model_checkpoint.database.records import Checkpoint, Experiment
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.root.listing import list_checkpoints
from model_checkpoint.errors import CheckpointNotFound
from model_checkpoint.manifest import Summary
from model_checkpoint.plan import ranking
from model_checkpoint.storage.contract.store import Store

KEY = ranking.CATALOG
_LOSSES = ("loss", "val_loss")
_CHOOSING = ("best_metric", "contends")  # of what is remembered: what the best are chosen by


class CachedRow:
    """A row in a cache: copied when somebody asks for it, not when it is put there with every save."""

    __slots__ = ("_row",)

    def __init__(self, row: Checkpoint) -> None:
        self._row = row

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedRow:
        return self

    @property
    def experiment_id(self) -> str:
        """With which run it is forgotten."""
        return self._row.experiment_id

    @property
    def row(self) -> Checkpoint:
        """A copy that may be changed."""
        return copy.deepcopy(self._row)


def row_of(info: CheckpointInfo, summary: Summary | None, *, root: str, run: Experiment | None = None) -> Checkpoint:
    """The row of one checkpoint, by its manifest alone; ``run`` is whose it is if nothing in there says so."""
    known = remembered(info)
    metrics = {name: value for name, value in info.metrics.items() if name not in _LOSSES}
    return Checkpoint(
        id=info.id,
        experiment_id=known.get("experiment_id") or (run.id if run is not None else ""),
        epoch=known.get("epoch"),
        step=info.step or 0,
        checkpoint_type=known.get("checkpoint_type", "manual"),
        file_path=info.path,
        file_size=info.size_bytes,
        checksum="" if summary is None else checksum_of(summary),
        model_name=known.get("model_name", ""),
        loss=info.metrics.get("loss"),
        val_loss=info.metrics.get("val_loss"),
        notes=known.get("notes", ""),
        metrics=metrics,
        metadata=_metadata(info, known),
        created_at=0.0 if info.timestamp is None else info.timestamp.timestamp(),
        name=info.prefix,
        root=root,
        backend=known.get("backend", "native"),
        parts=tuple(known.get("parts", ())),
        tags=tuple(known.get("tags", ())),
        unique_bytes=info.size_bytes - info.shared_bytes,
    )


def rows_of_root(store: Store) -> list[Checkpoint]:
    """What the manifests say, newest first; the truth is always at hand."""
    try:
        found = list_checkpoints(store)
    except CheckpointNotFound:
        return []
    return [row_of(info, None, root=store.url) for info in found if not info.problem]


def run_of(info: CheckpointInfo) -> Experiment | None:
    """The run that a checkpoint says it is of; None if it was saved without a manager."""
    known = remembered(info)
    if not known.get("experiment_id"):
        return None
    began = 0.0 if info.timestamp is None else info.timestamp.timestamp()
    return Experiment(
        id=known["experiment_id"],
        name=known.get("experiment_name", ""),
        project_name=known.get("project_name", "default"),
        tags=tuple(known.get("experiment_tags", ())),
        status="unknown",
        start_time=began,
        step=info.step or 0,
    )


def remembered(info: CheckpointInfo) -> Mapping[str, Any]:
    """What a manager has written into a manifest; nothing if none has."""
    found = info.metadata.get(KEY)
    return found if isinstance(found, Mapping) else {}


def _metadata(info: CheckpointInfo, known: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in info.metadata.items() if name != KEY}
    if known.get("config"):
        own["config"] = known["config"]
    choosing = {name: known[name] for name in _CHOOSING if name in known}
    return {**own, KEY: choosing} if choosing else own


def criterion_of(row: Checkpoint) -> str | None:
    """What the best metric was when a checkpoint was saved, if its manager was told; it outlives that manager."""
    return _chosen_by(row).get("best_metric")


def contends(row: Checkpoint) -> bool:
    """Whether a checkpoint may be called the best."""
    return ranking.contends(row.metadata)


def _chosen_by(row: Checkpoint) -> Mapping[str, Any]:
    found = row.metadata.get(KEY)
    return found if isinstance(found, Mapping) else {}


def checksum_of(summary: Summary) -> str:
    """One SHA-256 that stands for every byte of a checkpoint: over the digests of its files, in their order."""
    digests = "".join(record.digest for record in (*summary.files, *summary.extras))
    return hashlib.sha256(digests.encode()).hexdigest()
