"""MLflow tracker: a run of MLflow, by its client alone, so that no run the program itself has begun is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from model_checkpoint.database.records import Experiment
from model_checkpoint.plan.run_query import flattened
from model_checkpoint.tracking.bridges.required_package import required_package
from model_checkpoint.tracking.metric_queue import Logged

_ID_TAG = "model_checkpoint.run"
_MOST_METRICS, _MOST_PARAMS = 1000, 100  # in one call of MLflow
_STATUS = {"completed": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


class MlflowTracker:
    """The project becomes an experiment of MLflow, settings its parameters.

    Args:
        tracking_uri: Where MLflow keeps its runs; what ``MLFLOW_TRACKING_URI`` says, without.
    """

    name = "mlflow"

    def __init__(self, tracking_uri: str | None = None) -> None:
        self._uri = tracking_uri
        self._client: Any = None
        self._run_id = ""
        self._params: dict[str, str] = {}
        self._unfit: set[str] = set()  # metrics whose names it does not take

    def require(self) -> None:
        """Import it."""
        required_package("mlflow")

    def begin(self, run: Experiment) -> None:
        """Find the run by the tag with our id, or create it."""
        from mlflow import MlflowClient

        client = MlflowClient(self._uri)
        project = client.get_experiment_by_name(run.project_name)
        project_id = client.create_experiment(run.project_name) if project is None else project.experiment_id
        found = client.search_runs([project_id], f"tags.`{_ID_TAG}` = '{run.id}'", max_results=1)
        if found:
            self._run_id, self._params = found[0].info.run_id, dict(found[0].data.params)
            client.update_run(self._run_id, status="RUNNING")
        else:
            tags = {_ID_TAG: run.id}
            made = client.create_run(project_id, int(run.start_time * 1000), tags, run_name=run.name)
            self._run_id = made.info.run_id
        self._client = client

    def describe(self, run: Experiment) -> None:
        """Settings as parameters, which can be set once; words and notes as tags."""
        from mlflow.entities import Param, RunTag

        settings = flattened(run.config).items()
        params = {name: str(value) for name, value in settings if not isinstance(value, Mapping)}  # which is empty
        new = [Param(name, value) for name, value in params.items() if name not in self._params]
        changed = {name for name, value in params.items() if self._params.get(name, value) != value}
        tags = [RunTag("tags", ",".join(run.tags)), RunTag("mlflow.note.content", run.notes)]
        tags += [RunTag(f"changed.{name}", params[name]) for name in sorted(changed)]
        self._params |= params
        self._client.log_batch(self._run_id, tags=tags)
        for start in range(0, len(new), _MOST_PARAMS):
            self._client.log_batch(self._run_id, params=new[start : start + _MOST_PARAMS])

    def log(self, calls: Sequence[Logged]) -> list[str]:
        """Write metrics; the same twice is kept once, so a batch that was cut short may be written again."""
        from mlflow.entities import Metric

        metrics = [
            Metric(name, value, int(at * 1000), step) for at, step, values in calls for name, value in values.items()
        ]
        refused = [one.key for one in metrics if one.key in self._unfit]
        fit = [one for one in metrics if one.key not in self._unfit]
        for start in range(0, len(fit), _MOST_METRICS):
            refused += self._send(fit[start : start + _MOST_METRICS])
        return refused

    def _send(self, metrics: Sequence[Any]) -> list[str]:
        """Send some; if MLflow finds one invalid it takes none, so halves are tried until it is found."""
        from mlflow.exceptions import MlflowException

        if not metrics:
            return []
        try:
            self._client.log_batch(self._run_id, metrics=metrics)
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            if len(metrics) == 1:
                self._unfit.add(metrics[0].key)
                return [metrics[0].key]
            half = len(metrics) // 2
            return self._send(metrics[:half]) + self._send(metrics[half:])
        return []

    def end(self, run: Experiment) -> None:
        """Mark the run as ended."""
        end = None if run.end_time is None else int(run.end_time * 1000)
        self._client.set_terminated(self._run_id, _STATUS.get(run.status, "FINISHED"), end)
