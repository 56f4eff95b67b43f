"""Grid coordinator: all experiments of a grid, whichever process runs them.

Every process appends what happens to one log; the summary is what the whole log adds up to, so no two of them overwrite
each other's counts.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model_checkpoint import forks
from model_checkpoint.hooks.base_hook import BaseHook
from model_checkpoint.hooks.builtin.json_lines import JsonLines, replace_json
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookPriority


class GridCoordinatorHook(BaseHook):
    """Counts the experiments of a grid and keeps ``summary_file`` up to date, a log of the same name beside it.

    ``grid_config_file`` is JSON with ``total_experiments``, or with ``parameters``, each a list of values to combine.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     grid = GridCoordinatorHook(f"{folder}/summary.json", total_experiments=2)
        ...     with grid.experiment("lr=0.1", config={"lr": 0.1}):
        ...         pass
        ...     summary = grid.summary()
        >>> summary["completed_experiments"], summary["total_experiments"], summary["progress"]
        (1, 2, 0.5)
    """

    def __init__(
        self,
        summary_file: str | os.PathLike[str] = "grid_summary.json",
        *,
        grid_config_file: str | os.PathLike[str] | None = None,
        total_experiments: int | None = None,
        priority: HookPriority = HookPriority.LOW,
    ) -> None:
        self._file, self.priority = Path(summary_file), priority
        self.log = JsonLines(self._file.with_suffix(".jsonl"))
        self._total = total_experiments if grid_config_file is None else _total(grid_config_file, total_experiments)
        self._lock = forks.lock()
        self._offset = 0
        self._experiments: dict[str, dict[str, Any]] = {}

    def start(self, experiment_id: str, config: Mapping[str, Any] | None = None) -> None:
        """Tell that an experiment begins in this process."""
        self._tell("start", experiment_id, config=dict(config or {}), pid=os.getpid(), host=platform.node())

    def finish(self, experiment_id: str, *, error: BaseException | str | None = None) -> None:
        """Tell that an experiment is over: completed, or failed with an error."""
        self._tell("end", experiment_id, status="completed" if error is None else "failed", error=error)

    @contextmanager
    def experiment(self, experiment_id: str, config: Mapping[str, Any] | None = None) -> Iterator[None]:
        """One experiment from start to end; an exception makes it a failed one, and goes on."""
        self.start(experiment_id, config)
        try:
            yield
        except BaseException as error:
            self.finish(experiment_id, error=error)
            raise
        self.finish(experiment_id)

    def on_after_checkpoint_save(self, context: HookContext) -> None:
        """A checkpoint was saved: count it for its experiment."""
        if context.experiment_id is not None:
            self._tell("checkpoint", context.experiment_id, step=context.get("step"), loss=context.get("loss"))

    def on_error(self, context: HookContext) -> None:
        """Something failed: note it with its experiment, which may well go on."""
        if context.experiment_id is not None:
            self._tell("error", context.experiment_id, error=context.get("error"))

    def summary(self) -> dict[str, Any]:
        """What the logs of all processes add up to: counts, progress, the time left, and every experiment.

        An experiment whose process on this machine is gone without a word counts as ``vanished``.
        """
        with self._lock:
            records, self._offset = self.log.since(self._offset)
            for record in records:
                _add(self._experiments, record)
            experiments = {name: _with_fate(each) for name, each in self._experiments.items()}
        return _summary(experiments, self._total)

    def _tell(self, event: str, experiment_id: str, **more: Any) -> None:
        self.log.append({"at": time.time(), "event": event, "experiment_id": experiment_id, **more})
        replace_json(self._file, self.summary())


def _add(experiments: dict[str, dict[str, Any]], record: dict[str, Any]) -> None:
    """Add one line of the log to what is known."""
    fresh = {"status": "running", "checkpoints": 0, "errors": 0, "started_at": record["at"]}
    one = experiments.setdefault(record["experiment_id"], fresh)
    match record["event"]:
        case "start":
            told = {key: record.get(key) for key in ("config", "pid", "host")}
            one |= {"status": "running", "started_at": record["at"], **told}
            one.pop("ended_at", None)
        case "checkpoint":
            one["checkpoints"] += 1
            one |= {f"last_{key}": record[key] for key in ("step", "loss") if record.get(key) is not None}
        case "error":
            one["errors"] += 1
            one["last_error"] = record.get("error")
        case "end":
            one |= {"status": record["status"], "ended_at": record["at"]}
            if record.get("error") is not None:
                one["last_error"] = record["error"]


def _with_fate(experiment: dict[str, Any]) -> dict[str, Any]:
    told = dict(experiment)
    here = told.get("pid") is not None and told.get("host") == platform.node()
    if told["status"] == "running" and here and not _lives(told["pid"]):
        told["status"] = "vanished"
    return told


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's, so it lives
        return True
    return True


def _summary(experiments: dict[str, dict[str, Any]], total: int | None) -> dict[str, Any]:
    count = {
        status: sum(one["status"] == status for one in experiments.values())
        for status in ("running", "completed", "failed", "vanished")
    }
    total = max(total or 0, len(experiments))
    over = count["completed"] + count["failed"]
    took = [one["ended_at"] - one["started_at"] for one in experiments.values() if one["status"] == "completed"]
    summary: dict[str, Any] = {
        "total_experiments": total,
        **{f"{status}_experiments": number for status, number in count.items()},
        "progress": over / total if total else 0.0,
        "experiments": experiments,
    }
    if took:
        summary["seconds_left"] = (total - over) * (sum(took) / len(took)) / max(1, count["running"])
    return summary


def _total(config_file: str | os.PathLike[str], given: int | None) -> int | None:
    config = json.loads(Path(config_file).read_text())
    if given is not None:
        return given
    if "total_experiments" in config:
        return int(config["total_experiments"])
    parameters = config.get("parameters")
    return math.prod(len(values) for values in parameters.values()) if parameters else None
