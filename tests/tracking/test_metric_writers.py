"""Eight processes log at once, each to a run of its own and all to one: no error, nothing lost, nothing twice."""

import subprocess
import sys
from collections import Counter

import pytest

from model_checkpoint.tracking import ExperimentTracker, TrackerOptions

WRITERS, CALLS, METRICS = 8, 60, 20
SCRIPT = """
import logging, sys
from model_checkpoint.tracking import ExperimentTracker, TrackerOptions

url, folder, shared, number, calls, metrics = *sys.argv[1:4], *map(int, sys.argv[4:])
logging.basicConfig(level=logging.WARNING)
options = TrackerOptions(spool_folder=folder)
own = ExperimentTracker(f"own {number}", database_url=url, options=options)
common = ExperimentTracker.join(shared, url, options=options)
for step in range(calls):
    own.log_metrics({f"m{i}": float(i) for i in range(metrics)}, step=step)
    common.log_metrics({f"m{i}": float(number) for i in range(metrics)}, step=step)
    if step % 10 == 0:
        assert own.flush(120) and common.flush(120)
own.close()
common.close()
"""


@pytest.mark.slow
def test_eight_writers_at_once_lose_and_double_nothing(database_url, tmp_path):
    options = TrackerOptions(spool_folder=tmp_path)
    shared = ExperimentTracker("shared", database_url=database_url, options=options)
    arguments = [database_url, str(tmp_path), shared.experiment_id]

    writers = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments, str(number), str(CALLS), str(METRICS)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    said = [writer.communicate(timeout=280)[1] for writer in writers]

    assert [writer.returncode for writer in writers] == [0] * WRITERS, said
    assert said == [""] * WRITERS
    catalog = shared.connection
    runs = [run for run in catalog.list_experiments().items if run.name.startswith("own")]
    assert len(runs) == WRITERS
    for run in runs:
        found = Counter((point.metric_name, point.step) for point in catalog.get_metrics(run.id))
        assert found == Counter({(f"m{i}", step): 1 for i in range(METRICS) for step in range(CALLS)})
        assert {one.count for one in catalog.summaries(run.id)} == {CALLS}
    common = catalog.get_metrics(shared.experiment_id)
    found = Counter((point.metric_name, point.step, point.metric_value) for point in common)
    wanted = {(f"m{i}", step, float(n)): 1 for i in range(METRICS) for step in range(CALLS) for n in range(WRITERS)}
    assert found == Counter(wanted)
    assert {one.count for one in catalog.summaries(shared.experiment_id)} == {CALLS * WRITERS}
    assert list((tmp_path / "runs").glob("*")) == []
    assert shared.experiment.status == "running"
    shared.close()
    catalog.close()
