"""Series answers: points of series, for those who do not read the binary form."""

from __future__ import annotations

from pydantic import Field

from model_checkpoint.api.answers.basics import Answer
from model_checkpoint.api.answers.plain_values import Number


class SeriesFrame(Answer):
    """One series as a chart draws it: of each column its last place, least, greatest and last value."""

    run: str
    key: str
    count: int = Field(description="Points this was made from.")
    last_id: int | None = Field(description="The last step there is: ask with `from` this for what comes after.")
    x: list[Number]
    min: list[Number]
    max: list[Number]
    last: list[Number]


class SeriesAnswer(Answer):
    """Several series."""

    series: list[SeriesFrame]
    as_of: float
