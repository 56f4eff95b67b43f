"""Basics: what every answer has in common, and how a refusal looks."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Identity = Annotated[str, StringConstraints(pattern=ID_PATTERN)]


class Answer(BaseModel):
    """One JSON document, or a part of one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Question(BaseModel):
    """One JSON document that is sent to us; what we do not know is refused, not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Problem(Answer):
    """Why a request was refused: a sentence, a word for programs, and of a search where it goes wrong."""

    error: str = Field(description="What is wrong, and what to do.")
    code: str = Field(description="The same in one word, e.g. `NotFoundHere`.")
    at: int | None = Field(default=None, description="Of a search: the character where it goes wrong, from 0.")
    length: int | None = Field(default=None, description="Of a search: for how many characters.")
    suggestion: str | None = Field(default=None, description="Of a search: what may have been meant.")


_ALWAYS = (400, 401, 403, 405, 414, 416, 422, 429, 503)  # any route may be refused so, most of them by the gate


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals a route may give, for its OpenAPI entry; those of the gate are among them.

    Example:
        >>> sorted(refusals(404))
        [400, 401, 403, 404, 405, 414, 416, 422, 429, 503]
    """
    words = {
        400: "The request cannot be read.",
        401: "No token, or a wrong one.",
        403: "The Host or Origin is foreign, or nothing may be changed here.",
        404: "There is nothing of that id.",
        405: "The method is not answered here.",
        408: "The body took too long.",
        409: "It does not fit what is there now.",
        413: "The body is too large.",
        414: "The address is too long.",
        415: "The body is no JSON.",
        416: "Several ranges at once are not answered.",
        422: "A parameter has a value it does not take.",
        429: "Too much at once.",
        503: "The database of the catalog is away.",
    }
    return {status: {"model": Problem, "description": words[status]} for status in sorted({*_ALWAYS, *statuses})}


CHANGING = (404, 408, 409, 413, 415)  # refusals of every route that changes something
