"""Server answers: what is served here, and what may be done to it."""

from __future__ import annotations

from pydantic import Field

from model_checkpoint.api.answers.basics import Answer


class ServerFacts(Answer):
    """What a page must know before it asks for anything else."""

    version: str
    roots: list[str]
    catalog: str | None = Field(description="What keeps the records; null for plain roots.")
    read_only: bool = Field(description="Nothing can be changed from here.")
    why: str | None = Field(description="Why not, and what to do about it.")
    runs: int
    checkpoints: int
    damaged: int
    trash_days: float = Field(description="How long what is removed can be brought back.")
    keep: list[str] = Field(description="Keepers a preview begins with, in words.")
    now: float
