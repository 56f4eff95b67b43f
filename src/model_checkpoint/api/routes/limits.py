"""Limits: parameters that several routes take, each with its bounds."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from model_checkpoint.api.answers.basics import ID_PATTERN
from model_checkpoint.errors import OptionInvalid

MOST_ROWS, MOST_RUNS, MOST_KEYS, MOST_SERIES = 200, 200, 50, 1000

RunId = Annotated[str, Path(pattern=ID_PATTERN, description="The id of a run.")]
CheckpointId = Annotated[str, Path(pattern=ID_PATTERN, description="The id of a checkpoint.")]
JobId = Annotated[str, Path(pattern=ID_PATTERN, description="The id of a job.")]
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS, description="Rows of one page.")]
Cursor = Annotated[str, Query(max_length=1000, description="`next` of the page before.")]
Words = Annotated[str, Query(max_length=4000)]


def words_of(text: str, *, most: int, what: str) -> tuple[str, ...]:
    """Words between commas, each once.

    Example:
        >>> words_of("a,b,,a", most=5, what="ids")
        ('a', 'b')
    """
    words = tuple(dict.fromkeys(word for one in text.split(",") if (word := one.strip())))
    if len(words) > most:
        raise OptionInvalid(f"{what}: at most {most} at once, got {len(words)}.")
    return words
