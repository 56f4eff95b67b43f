"""Calls leave their metrics and return; one thread carries them on, and a flush tells the truth."""

import threading
import time

import pytest
from tests.ground.crowds import in_child, in_threads

from model_checkpoint.tracking.errors import FlushTimeout, TrackerClosed
from model_checkpoint.tracking.metric_queue import GATHER_POINTS, MOST_POINTS, Logged, MetricQueue

SOON = 30.0


class Receiver:
    """Keeps what is delivered, and can be made to wait."""

    def __init__(self):
        self.batches, self.threads, self.urgent = [], set(), []
        self.open = threading.Event()
        self.open.set()
        self.busy = threading.Event()

    def __call__(self, batch, urgent):
        self.busy.set()
        assert self.open.wait(SOON)
        self.threads.add(threading.get_ident())
        self.urgent.append(urgent)
        if batch:
            self.batches.append(batch)

    @property
    def steps(self):
        return [logged.step for batch in self.batches for logged in batch]


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.open.set()


@pytest.fixture
def make_queue(receiver):
    made = []

    def make(**options):
        made.append(MetricQueue(receiver, **options))
        return made[-1]

    yield make
    receiver.open.set()
    for queue in made:
        queue.close(SOON)


def logged(step, points=1):
    return Logged(time.time(), step, {f"m{i}": float(i) for i in range(points)})


def hold_first(queue, receiver):
    """Let the receiver take the first call and keep it, so that what follows waits in the queue."""
    receiver.open.clear()
    queue.put(logged(0))
    assert receiver.busy.wait(SOON)


def test_a_flush_returns_when_everything_before_it_was_delivered_in_order(make_queue, receiver):
    queue = make_queue()
    for step in range(5_000):
        queue.put(logged(step, 20))

    queue.flush(SOON)

    assert receiver.steps == list(range(5_000))


def test_one_thread_delivers_what_many_threads_log(make_queue, receiver):
    queue = make_queue()

    def log(first):
        for step in range(first, first + 500):
            queue.put(logged(step))

    in_threads(log, [1_000 * i for i in range(8)])
    queue.flush(SOON)

    assert sorted(receiver.steps) == sorted(1_000 * i + step for i in range(8) for step in range(500))
    assert len(receiver.threads) == 1
    assert threading.get_ident() not in receiver.threads


def test_metrics_are_delivered_soon_without_a_flush(make_queue, receiver):
    queue = make_queue(idle_seconds=3600)

    queue.put(logged(1))

    assert receiver.busy.wait(SOON)


def test_many_points_do_not_wait_for_the_clock_and_few_go_together(make_queue, receiver, monkeypatch):
    monkeypatch.setattr("model_checkpoint.tracking.metric_queue.GATHER_SECONDS", 3600.0)
    queue = make_queue()

    for step in range(GATHER_POINTS // 20):
        queue.put(logged(step, 20))
    assert receiver.busy.wait(SOON)
    queue.flush(SOON)

    assert [len(batch) for batch in receiver.batches] == [GATHER_POINTS // 20]


def test_a_batch_is_bounded_however_much_waits(make_queue, receiver):
    queue = make_queue()
    hold_first(queue, receiver)
    for step in range(1, 5_001):
        queue.put(logged(step, 20))

    receiver.open.set()
    queue.flush(SOON)

    sizes = [sum(len(one.values) for one in batch) for batch in receiver.batches]
    assert max(sizes) == MOST_POINTS
    assert receiver.steps == list(range(5_001))


def test_a_full_queue_makes_the_call_wait_and_loses_nothing(make_queue, receiver):
    queue = make_queue(capacity=10)
    hold_first(queue, receiver)  # ten more may wait
    for step in range(1, 11):
        queue.put(logged(step))

    late = threading.Thread(target=lambda: queue.put(logged(11)))
    late.start()
    late.join(0.05)
    assert late.is_alive()
    receiver.open.set()
    late.join(SOON)
    queue.flush(SOON)

    assert receiver.steps == list(range(12))
    assert queue.dropped == 0


def test_a_full_queue_may_drop_and_counts_every_point(make_queue, receiver):
    queue = make_queue(capacity=10, when_full="drop")
    hold_first(queue, receiver)

    for step in range(1, 21):
        queue.put(logged(step, 2))
    receiver.open.set()
    queue.flush(SOON)

    assert receiver.steps == list(range(6))
    assert queue.dropped == 15 * 2


def test_a_flush_that_comes_too_early_says_so_and_the_rest_goes_on(make_queue, receiver):
    queue = make_queue()
    receiver.open.clear()
    queue.put(logged(1))

    with pytest.raises(FlushTimeout, match=r"1 logging calls are still on their way after 0\.01 s; they go on"):
        queue.flush(0.01)
    receiver.open.set()
    queue.flush(SOON)

    assert receiver.steps == [1]


def test_a_flush_is_urgent_and_idle_calls_are_not(make_queue, receiver):
    queue = make_queue(idle_seconds=0.001)
    queue.start()
    assert receiver.busy.wait(SOON)
    assert not any(receiver.urgent)

    queue.flush(SOON)

    assert any(receiver.urgent)


def test_a_closed_queue_has_delivered_all_and_takes_nothing_more(make_queue, receiver):
    queue = make_queue()
    queue.put(logged(1))

    queue.close()
    queue.close()
    queue.flush()

    assert receiver.steps == [1]
    with pytest.raises(TrackerClosed, match="Nothing was logged"):
        queue.put(logged(2))
    assert "mckpt-metrics" not in [thread.name for thread in threading.enumerate()]


def test_a_receiver_that_fails_ends_nothing_and_what_is_lost_is_counted(make_queue, receiver, caplog):
    queue = make_queue()
    fine, receiver.__class__ = receiver.__class__, type("Failing", (Receiver,), {"__call__": lambda *_: 1 / 0})
    queue.put(logged(1, 3))
    queue.flush(SOON)

    receiver.__class__ = fine
    queue.put(logged(2))
    queue.flush(SOON)

    assert receiver.steps == [2]
    assert queue.dropped == 3
    assert "1 logging calls were lost" in caplog.text


def test_two_calls_never_have_one_moment(make_queue, receiver):
    queue = make_queue()

    for step in range(100):
        queue.put(Logged(1_700_000_000.0, step, {"x": 1.0}))
    queue.flush(SOON)

    times = [one.at for batch in receiver.batches for one in batch]
    assert len(set(times)) == 100
    assert times == sorted(times)


@pytest.mark.parametrize("held", [False, True], ids=["idle", "while the lock is held"])
def test_a_forked_child_begins_with_an_empty_queue_of_its_own(make_queue, receiver, held):
    queue = make_queue()
    receiver.open.clear()
    for step in range(100):
        queue.put(logged(step))
    if held:
        queue._lock.acquire()

    def child():
        receiver.open.set()
        queue.put(logged(1_000))
        queue.flush(SOON)
        assert receiver.steps == [1_000]

    code = in_child(child)
    if held:
        queue._lock.release()
    receiver.open.set()
    queue.flush(SOON)

    assert code == 0
    assert receiver.steps == list(range(100))
