"""Run titles: what people call a run, wherever only its id stands."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypedDict

from model_checkpoint.database import EnhancedDatabaseConnection


class RunTitle(TypedDict):
    """A run as it is called, and where it belongs."""

    run_name: str
    experiment: str


UNTITLED = RunTitle(run_name="", experiment="")


def titles_in(connection: EnhancedDatabaseConnection, runs: Collection[str] | None = None) -> dict[str, RunTitle]:
    """The titles of some runs of a catalog, or of all, by id.

    Example:
        >>> from model_checkpoint.database import Experiment
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     _ = db.save_experiment(Experiment(id="r1", name="baseline", project_name="gpt"))
        ...     titles_in(db)
        {'r1': {'run_name': 'baseline', 'experiment': 'gpt'}}
    """
    heads = connection.run_heads(runs)
    return {id: RunTitle(run_name=head.name, experiment=head.project_name) for id, head in heads.items()}
