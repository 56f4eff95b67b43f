"""What a job makes is made once, whoever asks for it and whenever."""

import threading

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.api.jobs.diff_work import diff_document
from model_checkpoint.api.jobs.job_runner import THREADS, JobRunner
from model_checkpoint.api.jobs.tensor_work import tensor_document
from model_checkpoint.api.library.result_cache import ResultCache
from model_checkpoint.checkpoint.catalog.catalog_rows import row_of


class LateCache(ResultCache):
    """A cache whose answer is told when the work that was queued meanwhile is over."""

    meanwhile = staticmethod(lambda: None)

    def get(self, kind, key):
        found = super().get(kind, key)
        self.meanwhile()
        return found


@pytest.fixture
def runner():
    jobs = JobRunner()
    yield jobs
    jobs.close()


def row_for(root, state, step):
    return row_of(mc.save(root, state, step=step), None, root=str(root))


@pytest.mark.parametrize("kind", ["tensors", "diff"])
def test_work_that_ends_while_its_outcome_is_looked_for_is_not_begun_again(tmp_path, runner, kind):
    first, second = (row_for(tmp_path / "run", {"w": np.full(9, float(step))}, step) for step in (1, 2))
    kept, go = LateCache(str(tmp_path / "kept")), threading.Event()

    def ask():
        return tensor_document(runner, kept, first) if kind == "tensors" else diff_document(runner, kept, first, second)

    def let_it_end():
        go.set()
        runner.wait(begun.id, 60)

    for number in range(THREADS):
        runner.start("wait", str(number), "waiting", lambda job: go.wait(60) and None)
    _, begun, _ = ask()
    kept.meanwhile = let_it_end

    state, job, _ = ask()

    assert (state, job) == ("computing", begun)
    assert ask()[:2] == ("ready", None)
    assert [one.kind for one in runner.jobs()].count(kind) == 1


def test_a_checkpoint_without_tensors_is_looked_into_once(tmp_path, runner):
    row, kept = row_for(tmp_path / "run", {"epoch": 3}, 1), ResultCache(str(tmp_path / "kept"))
    _, job, _ = tensor_document(runner, kept, row)
    runner.wait(job.id, 60)

    assert tensor_document(runner, kept, row) == ("ready", None, [])
