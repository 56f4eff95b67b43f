"""Run search: a run as a search sees it; one vocabulary for the command line, the REST interface and the pages.

A status goes by the word its tracker wrote and by the words people are shown: ``completed`` is ``finished``, and of
what is ``running`` it is said whether it is ``alive``, ``stalled`` (``hung``) or ``dead``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from model_checkpoint.database.summed_records import MetricSummary, RunOverview
from model_checkpoint.plan.metric_expressions import MINIMISED
from model_checkpoint.plan.run_query import flattened
from model_checkpoint.tracking.reporting.vitals import RunState, judge_run

OWN_NAMES = ("step", "n", "bytes")
_MEMORY_PLAN = "memory_plan"  # a setting with hundreds of values, which has a page of its own
_LIVING = {RunState.ALIVE: ("alive",), RunState.HUNG: ("stalled", "hung"), RunState.DEAD: ("dead",)}
_ENDED = {"completed": ("finished",), "failed": (), "stopped": ()}


def search_row(run: RunOverview, *, now: float, saver: str, summaries: Iterable[MetricSummary]) -> dict[str, Any]:
    """What a search finds a run by: metrics as they were last and at best, settings, and the usual fields.

    Args:
        run: With what its checkpoints come to.
        now: By the clock of its database.
        saver: Who saved its newest checkpoint, as ``user@host:process``; empty if nobody knows.
        summaries: Of its metrics; of those that are searched for, at least.

    Example:
        >>> from model_checkpoint.database import Experiment
        >>> ended = RunOverview(experiment=Experiment(id="r1", name="a", status="completed", config={"lr": 0.1}))
        >>> row = search_row(ended, now=0.0, saver="ann@lab:7", summaries=[])
        >>> row["status"], row["lr"], row["config.lr"], row["user"], row["n"]
        (('completed', 'finished'), 0.1, 0.1, 'ann', 0)
    """
    row, settings, measured = run.experiment, flat_settings(run), list(summaries)
    return {
        **settings,
        **{f"config.{name}": value for name, value in settings.items()},
        **{one.metric_name: one.last for one in measured},
        **{f"best.{one.metric_name}": best_of(one)[0] for one in measured},
        "step": run.step,
        "n": run.checkpoints,
        "bytes": run.unique_bytes,
        "status": status_words(run, now),
        "tag": list(row.tags),
        "experiment": row.project_name,
        "name": row.name,
        "id": row.id,
        "host": host_of(saver),
        "user": user_of(saver),
        "text": f"{row.project_name}/{row.name} {row.id} {row.notes}",
    }


def search_names(metrics: Iterable[str], runs: Iterable[RunOverview]) -> list[str]:
    """What a search of runs can compare: their own figures, metrics, ``best.`` metrics, settings.

    A setting that has the name of a metric is meant by ``config.`` and its name.
    """
    measured, settings = sorted(set(metrics)), sorted({name for run in runs for name in flat_settings(run)})
    best, own = (f"best.{name}" for name in measured), (f"config.{name}" for name in settings)
    return [*OWN_NAMES, *measured, *best, *settings, *own]


def status_words(run: RunOverview, now: float) -> tuple[str, ...]:
    """Every word by which the status of a run goes."""
    status = run.experiment.status
    if status == "running":
        return (status, *_LIVING[judge_run(run.experiment, now).state])
    return (status, *_ENDED.get(status, ("unknown",)))


def flat_settings(run: RunOverview) -> dict[str, Any]:
    """The settings of a run by dotted names, without its memory plan."""
    return flattened({name: value for name, value in run.experiment.config.items() if name != _MEMORY_PLAN})


def best_of(summary: MetricSummary) -> tuple[float | None, int | None]:
    """The best value of a series, and its step: the least of what gets better downwards, else the greatest."""
    if summary.metric_name.lower().endswith(MINIMISED):
        return summary.min, summary.min_step
    return summary.max, summary.max_step


def host_of(saver: str) -> str | None:
    """The machine in ``user@host:process``.

    Example:
        >>> host_of("ann@lab:7"), host_of("")
        ('lab', None)
    """
    return saver.rpartition(":")[0].partition("@")[2] or None


def user_of(saver: str) -> str | None:
    """The user in ``user@host:process``."""
    return saver.partition("@")[0] or None
