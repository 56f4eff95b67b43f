"""A queue of runs that is stopped wakes whoever waits in it, and gets all its memory back."""

import threading

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.engine.background.staging_pool import POOL
from model_checkpoint.engine.background.staging_queue import StagingQueue
from model_checkpoint.engine.writing.request import request_save
from model_checkpoint.engine.writing.save import plan_save
from model_checkpoint.engine.writing.slabs import finish_run, plan_runs
from model_checkpoint.storage.locate import open_store

MIB = 1 << 20


def queue_of(root, **options):
    """A queue of four runs of a save that is planned and not begun."""
    order = request_save(step=1, name=None, metrics=None, metadata=None, **options)
    planned = plan_save(open_store(root), order, {"w": np.arange(4 * MIB)}, overwrite=False)
    return StagingQueue(plan_runs(planned.writing, 4 * MIB), limit=None)


def test_a_run_that_is_copied_after_the_stop_gives_its_memory_back(tmp_path):
    queue = queue_of(f"memory://{tmp_path.name}")
    index, slab = queue._take()

    queue.stop(KeyError("over"))

    with pytest.raises(KeyError, match="over"):
        queue._hand_over(index, slab)
    assert any(slab is one for one in POOL._idle)
    assert queue.stopped


def test_a_worker_that_waits_for_its_turn_in_a_compressed_file_does_not_outlive_the_stop(tmp_path):
    queue = queue_of(f"memory://{tmp_path.name}", compression=mc.CompressionLevel.FAST)
    run = next(run for run in queue.runs if run.first > 1)  # the one before it never comes
    slab = queue._take()[1]
    waiting = threading.Thread(target=finish_run, args=(run, slab), daemon=True)
    waiting.start()
    waiting.join(0.2)
    waits = waiting.is_alive()

    queue.stop(KeyError("over"))
    waiting.join(20)
    POOL.give(slab)  # else saves with a ceiling wait for it ever after

    assert (waits, waiting.is_alive()) == (True, False)
