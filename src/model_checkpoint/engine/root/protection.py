"""Protection: which checkpoints have the parity files they were saved to get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.common.workers import Pace, run_all
from model_checkpoint.errors import CheckpointNotFound
from model_checkpoint.manifest import Head, Summary
from model_checkpoint.storage.contract.store import Store

_AT_ONCE = 16  # requests; a bucket takes its time for each


def has_parity(store: Store, summary: Head | Summary) -> bool:
    """Whether every parity file that a checkpoint was asked to get is there; looks at no byte of it."""
    try:
        return {*summary.parity_files} <= store.files(summary.name).keys()
    except CheckpointNotFound:
        return False  # deleted meanwhile


def tell_protection(
    store: Store, infos: Sequence[CheckpointInfo], summaries: Mapping[str, Head | Summary]
) -> list[CheckpointInfo]:
    """Add to ``infos`` whether the parity files are there; only those that were asked to get some are looked at."""
    asked = [summary for summary in summaries.values() if summary.parity_files]
    protected: set[str] = set()

    def look(items: Iterator[Head | Summary]) -> None:
        protected.update(summary.name for summary in items if has_parity(store, summary))

    run_all(look, asked, pace=Pace(most=_AT_ONCE))
    return [replace(info, protected=info.prefix in protected) for info in infos]
