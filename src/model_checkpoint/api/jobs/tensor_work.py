"""Tensor work: figures and a histogram of every tensor of a checkpoint, once for each digest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from model_checkpoint.api.answers.plain_values import number_of
from model_checkpoint.api.jobs.job_runner import JobRunner, ServerJob
from model_checkpoint.api.jobs.kept_work import kept_or_begun
from model_checkpoint.api.library.result_cache import ResultCache
from model_checkpoint.api.reading.checkpoint_detail import part_of
from model_checkpoint.database import Checkpoint
from model_checkpoint.database.values.cursors import cursor_of, read_cursor, sort_word
from model_checkpoint.engine.reading.tensor_reader import TensorReader
from model_checkpoint.errors import CheckpointException, OptionInvalid
from model_checkpoint.storage.locate import open_store

if TYPE_CHECKING:
    from model_checkpoint.engine.reading.figures.number_figures import NumberFigures

KIND = "tensors"
BINS = 32
SORTS = ("name", "bytes", "norm", "std", "nan", "max", "min", "mean", "zeros")


def digest_of(row: Checkpoint) -> str:
    """What stands for the content of a checkpoint: its checksum, or its id, which never means two."""
    return row.checksum or row.id


def tensor_document(jobs: JobRunner, kept: ResultCache, row: Checkpoint) -> tuple[str, ServerJob | None, Any]:
    """``ready`` and the figures, or ``computing`` or ``failed`` and the job; asking begins the work."""

    def look() -> Any:
        found = (kept.get(KIND, key) for key in (digest_of(row), _as_damaged(row)))
        return next((lines for lines in found if lines is not None), None)  # a checkpoint may have no tensor at all

    title = f"figures of {row.name}"
    return kept_or_begun(jobs, KIND, [row], title=title, look=look, work=lambda job: compute_tensors(job, kept, row))


def compute_tensors(job: ServerJob, kept: ResultCache, row: Checkpoint) -> dict[str, Any]:
    """Read every tensor once, and keep what it is like."""
    with TensorReader(open_store(row.root), name=row.name) as tensors:
        lines = []
        sizes = {name: tensors.nbytes(name) for name in tensors.specs}
        job.total = sum(sizes.values())
        for name, spec in tensors.specs.items():
            figures, lost = _figures(job, tensors, name)
            place = {"part": part_of(name, row.parts), "name": name, "shape": list(spec.shape), "dtype": spec.dtype}
            lines.append({**place, "bytes": sizes[name], **_told(figures), "lost": lost})
    missing = sum(one["lost"] for one in lines)
    kept.put(KIND, _as_damaged(row) if missing else digest_of(row), lines)
    return {"tensors": len(lines), "lost": missing}


def _as_damaged(row: Checkpoint) -> str:
    """What is lost may be mended: then it is verified, and this is no longer what is asked for."""
    return f"{digest_of(row)} {row.verified_at}"


def _figures(job: ServerJob, tensors: TensorReader, name: str) -> tuple[NumberFigures | None, bool]:
    """The figures of one tensor, if it has any; one that cannot be read whole is lost."""
    from model_checkpoint.engine.reading.figures.tensor_figures import tensor_figures  # brings NumPy

    job.advance(0, name)
    try:
        return tensor_figures(tensors, name, bins=BINS, advance=job.advance), False
    except CheckpointException:
        return None, True


def _told(figures: NumberFigures | None) -> dict[str, Any]:
    """Figures as JSON can say them."""
    numbers = {name: number_of(getattr(figures, name, None)) for name in ("mean", "std", "min", "max", "norm")}
    counts = {name: getattr(figures, name, None) for name in ("nan", "inf", "zeros")}
    return {**numbers, **counts, "hist": [] if figures is None else list(figures.histogram)}


def tensor_page(lines: list[dict[str, Any]], *, text: str, sort: str, limit: int, cursor: str) -> dict[str, Any]:
    """Some of the tensors: those whose name has ``text``, in the order of ``sort``."""
    word, falling = sort_word(sort, SORTS)
    chosen = [one for one in lines if text.lower() in one["name"].lower()]
    chosen.sort(key=lambda one: (_rank(one[word]), one["name"]), reverse=falling)
    start = 0
    if cursor:
        (place,) = read_cursor(cursor, 1)
        if not isinstance(place, int) or place < 0:
            raise OptionInvalid("cursor: is none of this list. Take it from the page before.")
        start = place
    more = start + limit < len(chosen)
    following = cursor_of([start + limit]) if more else None
    return {"rows": chosen[start : start + limit], "total": len(chosen), "next": following}


def _rank(value: Any) -> tuple[int, Any]:
    return (1, value) if isinstance(value, (int, float)) else (2, value) if isinstance(value, str) else (0, 0)
