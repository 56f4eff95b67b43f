"""Diff work: how far every tensor moved between two checkpoints, most first; once for each pair of digests."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

from model_checkpoint.api.answers.plain_values import number_of
from model_checkpoint.api.jobs.job_runner import JobRunner, ServerJob
from model_checkpoint.api.jobs.kept_work import kept_or_begun
from model_checkpoint.api.jobs.tensor_work import BINS, digest_of
from model_checkpoint.api.library.result_cache import ResultCache
from model_checkpoint.database import Checkpoint
from model_checkpoint.engine.reading.diff import is_untouched
from model_checkpoint.engine.reading.tensor_reader import TensorReader
from model_checkpoint.errors import UnsupportedType
from model_checkpoint.storage.locate import open_store
from model_checkpoint.tree.values.plain import plain_values, shorten

KIND = "diff"
_KEPT = "movements"  # the name of the documents, another one whenever their fields are
By = Literal["rel", "cos", "max_abs", "changed"]
_MOST_NAMES, _MOST_VALUES = 1000, 200


def diff_document(
    jobs: JobRunner, kept: ResultCache, a: Checkpoint, b: Checkpoint
) -> tuple[str, ServerJob | None, dict[str, Any] | None]:
    """``ready`` and the comparison, or ``computing`` or ``failed`` and the job; asking begins the work."""
    return kept_or_begun(
        jobs,
        KIND,
        [a, b],
        title=f"{a.name} against {b.name}",
        look=lambda: kept.get(_KEPT, f"{digest_of(a)} {digest_of(b)}"),
        work=lambda job: compute_diff(job, kept, a, b),
    )


def compute_diff(job: ServerJob, kept: ResultCache, a: Checkpoint, b: Checkpoint) -> dict[str, Any]:
    """Compare every tensor that both have, and keep what was found."""
    with (
        TensorReader(open_store(a.root), name=a.name) as left,
        TensorReader(open_store(b.root), name=b.name) as right,
    ):
        both = [name for name in left.specs if name in right.specs]
        differing = [name for name in both if left.fingerprint(name) != right.fingerprint(name)]
        job.total = sum(side.nbytes(name) for name in differing for side in (left, right))
        rows = [row for name in differing if (row := _row(job, left, right, name)) is not None]
        gaps = sum(row.pop("gap") ** 2 for row in rows)
        norms = sum(row["norm_a"] ** 2 for row in rows if isinstance(row["norm_a"], float))
        moved = {row["name"] for row in rows}
        document = {
            "summary": {
                "compared": len(both),
                "changed": len(rows),
                "moved": number_of(math.sqrt(gaps / norms) if norms else None),
            },
            "rows": rows,
            "added": [name for name in right.specs if name not in left.specs][:_MOST_NAMES],
            "removed": [name for name in left.specs if name not in right.specs][:_MOST_NAMES],
            "same": [name for name in both if name not in moved][:_MOST_NAMES],
            "values": _values(left, right),
        }
    kept.put(_KEPT, f"{digest_of(a)} {digest_of(b)}", document)
    return {"changed": len(rows), "compared": len(both)}


def _row(job: ServerJob, left: TensorReader, right: TensorReader, name: str) -> dict[str, Any] | None:
    """How far one tensor moved; None if it did not, and only its neighbours in the storage did."""
    from model_checkpoint.engine.reading.figures.movement import movement_of  # brings NumPy

    job.advance(0, name)
    spec = right.specs[name]
    row: dict[str, Any] = {"name": name, "shape": list(spec.shape), "dtype": spec.dtype}
    none = dict.fromkeys(("rel", "cos", "max_abs", "norm_a", "norm_b")) | {"changed": 0, "spoiled": 0, "gap": 0.0}
    empty = {"hist_a": [0] * BINS, "hist_b": [0] * BINS}
    try:
        a, b = left.array(name), right.array(name)
    except UnsupportedType:  # NumPy has no such dtype
        return {**row, **none, **empty}
    if is_untouched(name, left, right, a, b):
        return None
    moved = movement_of(a, b, lambda nbytes: job.advance(nbytes))
    if moved is None:
        return {**row, **none, **empty}
    return {
        **row,
        "gap": moved.gap,
        "rel": number_of(moved.rel),
        "cos": number_of(moved.cos),
        "max_abs": number_of(moved.max_abs),
        "changed": moved.changed,
        "spoiled": moved.spoiled,
        "norm_a": number_of(moved.before),
        "norm_b": number_of(moved.after),
        **_histograms(a, b),
    }


def _histograms(a: Any, b: Any) -> dict[str, list[int]]:
    """Both over the same stretch, so that they can be drawn over each other."""
    from model_checkpoint.engine.reading.figures.number_figures import blocks_of, ends_of, histogram, is_real

    ends = [end for one in (a, b) if is_real(one.dtype) for end in ends_of(one)]
    if not ends:
        return {"hist_a": [0] * BINS, "hist_b": [0] * BINS}
    low, high = min(ends), max(ends)
    sides = {"hist_a": a, "hist_b": b}
    return {word: list(histogram(partial(blocks_of, one), low, high, BINS)) for word, one in sides.items()}


def _values(left: TensorReader, right: TensorReader) -> list[dict[str, str | None]]:
    """Plain values that differ, as text."""
    a, b = plain_values(left.manifest.tree), plain_values(right.manifest.tree)
    names = [name for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)][:_MOST_VALUES]
    return [
        {
            "name": name,
            "before": shorten(a[name]) if name in a else None,
            "after": shorten(b[name]) if name in b else None,
        }
        for name in names
    ]


def ranked(rows: list[dict[str, Any]], by: By) -> list[dict[str, Any]]:
    """New NaN or infinities first, then the smallest cosine, or the largest of the others; without a distance last."""
    from model_checkpoint.engine.reading.figures.movement import rank

    def key(row: dict[str, Any]) -> tuple[int, float]:
        value = None if row[by] is None else float(row[by])  # a word of JSON is one of Python
        return rank(row["spoiled"], None if value is None else -value if by == "cos" else value)

    return sorted(rows, key=key)
