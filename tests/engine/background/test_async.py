"""A background save: what it stages is what it saves, its handle tells the truth, and no failure is lost."""

import asyncio
import errno
import pickle
import threading

import numpy as np
import pytest
from tests.engine.background.array_states import state_of
from tests.ground.crowds import in_threads
from tests.ground.stored.equal_values import same

import model_checkpoint as mc
from model_checkpoint.engine.background.save_async import finish_saves, save_async
from model_checkpoint.engine.background.staging_pool import POOL
from model_checkpoint.engine.jobs.inflight import raise_unseen
from model_checkpoint.engine.jobs.running_save import SaveState
from model_checkpoint.errors import (
    BackgroundSaveFailed,
    SaveCancelled,
    SaveSkipped,
    StepExists,
    StorageFailure,
    UnsupportedType,
)
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing.faults import Fault, FaultyCalls, Kind


class HeldCalls(FaultyCalls):
    """The system, held before the rename that publishes."""

    def __init__(self):
        super().__init__()
        self.reached, self.opened = threading.Event(), threading.Event()

    def perform(self, name, action, *args, **kwargs):
        if name == "rename" and "manifest" not in args[0]:
            self.reached.set()
            assert self.opened.wait(60)
        return super().perform(name, action, *args, **kwargs)


def failing_store(path):
    return LocalStore(path, calls=FaultyCalls(Fault(kind=Kind.FAIL, at=12, code=errno.EIO, lasting=True)))


def test_a_background_save_is_what_a_blocking_save_is(tmp_path):
    state = state_of(1)

    info = save_async(tmp_path, state, step=1, metrics={"loss": 0.5}, metadata={"by": "me"}).result()

    assert same(mc.load(tmp_path, verify="full"), state)
    assert (info.step, info.metrics, info.metadata) == (1, {"loss": 0.5}, {"by": "me"})
    assert [health.ok for health in mc.verify(tmp_path)] == [True]
    assert mc.diff(str(tmp_path), mc.save(tmp_path / "b", state, step=1).path).changed == []


def test_a_state_changed_right_after_the_call_is_saved_as_it_was(tmp_path, gate):
    state = state_of(1)
    expected = pickle.loads(pickle.dumps(state))

    job = save_async(tmp_path, state, step=1, progress=gate)
    state["w"][:] = -1
    state["small"][:] = -1
    gate.opened.set()
    job.result()

    assert same(mc.load(tmp_path), expected)


def test_the_handle_passes_staged_and_is_done_only_when_durable(tmp_path, gate):
    job = save_async(tmp_path, state_of(1), step=1, progress=gate)

    assert gate.reached.wait(30)
    assert job.state is SaveState.STAGED
    job.wait_staged(0)
    assert not job.done()
    with pytest.raises(TimeoutError, match=r"not durable after 0\.01 s, it is staged"):
        job.result(0.01)
    with pytest.raises(TimeoutError, match="not over after"):
        job.exception(0.01)
    assert mc.list_checkpoints(tmp_path) == []

    gate.opened.set()

    assert job.result(30).step == 1
    assert job.exception() is None
    assert job.done()
    assert job.state is SaveState.DURABLE
    assert [i.step for i in mc.list_checkpoints(tmp_path)] == [1]


def test_written_is_when_every_byte_is_there_and_only_the_commit_is_left_which_nobody_can_cancel(tmp_path):
    calls = HeldCalls()
    job = save_async(LocalStore(tmp_path, calls=calls), state_of(1), step=1)

    assert calls.reached.wait(30)
    seen, cancelled, names = job.state, job.cancel(), [call.name for call in calls.trace]
    calls.opened.set()

    assert (seen, cancelled) == (SaveState.WRITTEN, False)
    assert names.count("fsync") == 2  # the data file and the manifest
    assert job.result(30).step == 1
    assert job.state is SaveState.DURABLE


def test_a_handle_can_be_awaited(tmp_path, gate):
    async def train():
        job = save_async(tmp_path, state_of(1), step=1, progress=gate)
        asyncio.get_running_loop().call_later(0.05, gate.opened.set)
        return await job, await job

    first, second = asyncio.run(train())

    assert first.step == 1
    assert second is first


def test_an_await_raises_what_went_wrong(tmp_path):
    async def train():
        await save_async(failing_store(tmp_path), state_of(1), step=1)

    with pytest.raises(StorageFailure, match="Input/output error"):
        asyncio.run(train())


def test_a_cancelled_save_leaves_nothing(tmp_path, gate):
    job = save_async(tmp_path, state_of(1), step=1, progress=gate)
    assert gate.reached.wait(30)

    assert job.cancel()
    gate.opened.set()

    with pytest.raises(SaveCancelled, match="nothing of it is visible"):
        job.result(30)
    assert job.state is SaveState.CANCELLED
    assert job.cancel()
    assert mc.list_checkpoints(tmp_path) == []
    assert [p for p in (tmp_path / ".staging").rglob("*") if p.is_file()] == []
    raise_unseen()


def test_a_queued_save_can_be_cancelled_before_its_turn(tmp_path, gate):
    first = save_async(tmp_path, state_of(1), step=1, progress=gate)
    second = save_async(tmp_path, state_of(2), step=2, busy="queue")

    assert second.cancel()
    gate.opened.set()

    assert first.result().step == 1
    with pytest.raises(SaveCancelled, match="step-00000002"):
        second.result()
    assert [i.step for i in mc.list_checkpoints(tmp_path)] == [1]


def test_cancel_after_the_commit_is_refused(tmp_path):
    job = save_async(tmp_path, state_of(1), step=1)
    job.result()

    assert not job.cancel()
    assert job.state is SaveState.DURABLE


def test_a_taken_step_and_an_unknown_type_are_told_by_the_call_itself(tmp_path):
    mc.save(tmp_path, {"a": 1}, step=1)

    with pytest.raises(StepExists, match="already committed"):
        save_async(tmp_path, {"a": 2}, step=1)
    with pytest.raises(UnsupportedType, match="x"):
        save_async(tmp_path, {"x": object()}, step=2)
    with pytest.raises(ValueError, match="busy must be"):
        save_async(tmp_path, {"a": 2}, step=2, busy="maybe")

    raise_unseen()  # none of these is a background failure
    assert save_async(tmp_path, {"a": 2}, step=1, overwrite=True).result().step == 1
    assert mc.load(tmp_path) == {"a": 2}


def test_overwriting_only_what_is_damaged_works_in_the_background(tmp_path):
    mc.save(tmp_path, {"a": np.zeros(5000)}, step=1)
    with pytest.raises(StepExists, match="healthy"):
        save_async(tmp_path, {"a": np.ones(5000)}, step=1, overwrite="damaged")
    file = next((tmp_path / "checkpoints" / "step-00000001").glob("*.safetensors"))
    with open(file, "r+b") as stream:
        stream.seek(9000)
        stream.write(b"!")

    save_async(tmp_path, {"a": np.ones(5000)}, step=1, overwrite="damaged").result()

    assert mc.load(tmp_path)["a"][0] == 1


def test_a_second_save_waits_by_default(tmp_path, gate):
    first = save_async(tmp_path, state_of(1), step=1, progress=gate)
    threading.Timer(0.1, gate.opened.set).start()

    second = save_async(tmp_path, state_of(2), step=2)

    assert first.done()
    assert second.result().step == 2
    assert (second.counts.waits, second.counts.skips, second.counts.queued) == (1, 0, 0)


def test_a_second_save_may_be_skipped(tmp_path, gate):
    first = save_async(tmp_path, state_of(1), step=1, progress=gate)

    second = save_async(tmp_path, state_of(2), step=2, busy="skip")

    assert second.done()
    assert second.state is SaveState.SKIPPED
    with pytest.raises(SaveSkipped, match="another save of this root was in flight"):
        second.result()
    gate.opened.set()
    assert first.result().step == 1
    assert first.counts.skips == 1
    assert save_async(tmp_path, state_of(3), step=3, busy="skip").result().step == 3


def test_a_second_save_may_be_queued_and_is_staged_at_once(tmp_path, gate):
    first = save_async(tmp_path, state_of(1), step=1, progress=gate)
    state = state_of(2)
    expected = pickle.loads(pickle.dumps(state))

    second = save_async(tmp_path, state, step=2, busy="queue")
    state["w"][:] = 0
    third = save_async(tmp_path, state_of(3), step=3, busy="queue")

    assert [job.state for job in (first, second, third)] == [SaveState.STAGED] * 3
    assert third.counts.queued == 2
    gate.opened.set()
    assert third.result().step == 3
    assert second.done()
    assert same(mc.load(tmp_path, step=2), expected)


def test_a_queued_save_goes_on_when_the_one_ahead_fails(tmp_path, gate):
    def fail(event):
        gate(event)
        raise KeyError("listener")

    first = save_async(tmp_path, state_of(1), step=1, progress=fail)
    second = save_async(tmp_path, state_of(2), step=2, busy="queue")

    gate.opened.set()

    assert second.result().step == 2
    assert isinstance(first.exception(), KeyError)


def test_a_blocking_save_lets_the_one_in_flight_end_first(tmp_path, gate):
    job = save_async(tmp_path, state_of(1), step=1, progress=gate)
    threading.Timer(0.1, gate.opened.set).start()

    with pytest.raises(StepExists, match="already committed"):
        mc.save(tmp_path, state_of(2), step=1)

    assert job.done()
    assert same(mc.load(tmp_path), state_of(1))


def test_many_roots_save_at_once(tmp_path, gate):
    states = [state_of(i, mib=2) for i in range(6)]

    jobs = [save_async(tmp_path / str(i), state, step=1, progress=gate) for i, state in enumerate(states)]

    assert not any(job.done() for job in jobs)
    gate.opened.set()
    for i, job in enumerate(jobs):
        job.result()
        assert same(mc.load(tmp_path / str(i)), states[i])


def test_many_threads_save_to_one_root(tmp_path):
    jobs = {}

    def work(i):
        jobs[i] = save_async(tmp_path, state_of(i, mib=1), step=i, busy=("wait", "queue")[i % 2])

    in_threads(work, range(8))

    for i, job in jobs.items():
        assert job.result().step == i
        assert same(mc.load(tmp_path, step=i), state_of(i, mib=1))


def test_the_handle_raises_a_background_failure_each_time(tmp_path):
    job = save_async(failing_store(tmp_path), state_of(1), step=1)

    for _ in range(2):
        with pytest.raises(StorageFailure, match="Input/output error"):
            job.result()
    assert job.state is SaveState.FAILED
    assert mc.save(tmp_path, {"a": 1}, step=2).step == 2  # the failure was seen, so nobody else must be told


@pytest.mark.parametrize("next_save", [mc.save, save_async], ids=["save", "save_async"])
def test_the_next_save_raises_a_failure_nobody_asked_for_once(tmp_path, next_save):
    save_async(failing_store(tmp_path), state_of(1), step=1)

    with pytest.raises(BackgroundSaveFailed, match=r"step-00000001: .*Input/output error.*repeat it") as caught:
        next_save(tmp_path, {"a": 1}, step=2)
    assert isinstance(caught.value.inner_exception, StorageFailure)
    next_save(tmp_path, {"a": 1}, step=2)
    finish_saves()

    assert [i.step for i in mc.list_checkpoints(tmp_path)] == [2]


def test_a_failure_of_another_root_does_not_stop_this_one(tmp_path):
    job = save_async(failing_store(tmp_path / "a"), state_of(1), step=1)

    assert save_async(tmp_path / "b", state_of(2), step=1).result().step == 1

    with pytest.raises(BackgroundSaveFailed, match="step-00000001"):
        finish_saves()
    assert job.done()
    finish_saves()


def test_a_failing_listener_fails_the_save_and_leaves_nothing(tmp_path):
    def listen(event):
        raise KeyError("listener")

    job = save_async(tmp_path, state_of(1), step=1, progress=listen)

    with pytest.raises(KeyError, match="listener"):
        job.result()
    assert mc.list_checkpoints(tmp_path) == []
    assert POOL.total == sum(len(slab) for slab in POOL._idle)


def test_progress_ends_at_the_total(tmp_path, gate):
    gate.opened.set()
    info = save_async(tmp_path, state_of(1, mib=40), step=1, progress=gate).result()

    assert gate.events[-1].done == gate.events[-1].total == info.size_bytes
    assert [e.done for e in gate.events] == sorted(e.done for e in gate.events)
    assert gate.events[-1].operation == "save"


def test_every_layout_works_in_the_background(tmp_path):
    for layout in mc.CheckpointFormat:
        state = {"model": {"a": np.arange(7.0)}, "epoch": 1}
        save_async(tmp_path / layout.value, state, step=1, format=layout).result()

        assert np.array_equal(mc.load(tmp_path / layout.value)["model"]["a"], np.arange(7.0))
        assert [h.ok for h in mc.verify(tmp_path / layout.value)] == [True]
