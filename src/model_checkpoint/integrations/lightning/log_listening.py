"""Log listening: what a trainer of Lightning logs, heard without being one of its loggers.

A logger more would change where Lightning puts its own files, so the one place all of them are fed from is listened to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def listen_to_logs(trainer: Any, heard: Callable[[Mapping[str, Any], int], None]) -> None:
    """Call ``heard`` with the metrics of every log, at the step of the trainer or at the one they were logged for."""
    connector = trainer._logger_connector
    log_metrics = connector.log_metrics

    def hear(metrics: Mapping[str, Any], step: int | None = None) -> None:
        if metrics:
            heard(metrics, trainer.global_step if step is None else step)
        log_metrics(metrics, step=step)

    connector.log_metrics = hear


def turn_away_from_logs(trainer: Any) -> None:
    """Let it log as ever."""
    vars(trainer._logger_connector).pop("log_metrics", None)
