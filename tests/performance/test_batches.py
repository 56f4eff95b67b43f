"""Every row is written once, or told of: whatever the writer refuses, and wherever it stops answering."""

import pickle
import threading
from itertools import count, islice

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_checkpoint.database import (
    Checkpoint,
    DatabaseUnreachable,
    EnhancedDatabaseConnection,
    Experiment,
    Metric,
    RowRefused,
)
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.performance import BatchInterrupted, BatchProcessor, BatchReport


class Refused(ValueError):
    """What a table says to a row it cannot take."""


class Table:
    """Takes all rows of a call or none, as a transaction does."""

    def __init__(self, refuses=()):
        self.refuses, self.rows, self.calls = set(refuses), [], 0
        self._lock = threading.Lock()

    def write_metrics(self, rows):
        with self._lock:
            self.calls += 1
            if self.refuses & set(rows):
                raise Refused(f"cannot take {sorted(self.refuses & set(rows))[0]}")
            self.rows += rows

    save_checkpoints = write_metrics


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.integers(0, 60),
    bad=st.sets(st.integers(0, 59), max_size=10),
    size=st.integers(1, 17),
    workers=st.integers(1, 3),
)
def test_each_row_is_written_once_or_told_of(rows, bad, size, workers):
    table = Table(bad)

    report = BatchProcessor(table, workers, size).batch_save_metrics(range(rows))

    refused = sorted(bad & set(range(rows)))
    assert sorted(table.rows) == [row for row in range(rows) if row not in bad]
    assert [failure.index for failure in report.failures] == refused
    assert [failure.row for failure in report.failures] == refused
    assert all(isinstance(failure.error, Refused) for failure in report.failures)
    assert (report.written, report.ok) == (rows - len(refused), not refused)


def test_a_batch_is_one_transaction_and_one_bad_row_costs_a_few():
    good, one_bad = Table(), Table({500})

    assert BatchProcessor(good, batch_size=100).batch_save_metrics(range(1000)).transactions == good.calls == 10
    assert BatchProcessor(one_bad, batch_size=100).batch_save_metrics(range(1000)).transactions < 10 + 2 * 8


def test_rows_of_an_endless_source_are_taken_only_as_they_are_written():
    taken = []

    def source():
        for n in islice(count(), 10_000):
            taken.append(n)
            yield n

    class Slow(Table):
        def write_metrics(self, rows):
            assert len(taken) - len(self.rows) <= 10 * (2 * 2 + 2)
            super().write_metrics(rows)

    table = Slow()
    BatchProcessor(table, 2, 10).batch_save_metrics(source())

    assert len(table.rows) == 10_000


def test_a_dead_database_stops_the_call_and_what_is_left_can_be_written_later():
    class Dying(Table):
        def write_metrics(self, rows):
            if self.calls >= 3:
                raise ConnectionError("the server is gone")
            super().write_metrics(rows)

    table = Dying()
    with pytest.raises(BatchInterrupted, match=r"stopped after 30 rows .* the server is gone") as caught:
        BatchProcessor(table, 1, 10).batch_save_metrics(iter(range(100)))

    left = [n for start, stop in caught.value.unwritten for n in range(start, 100 if stop is None else stop)]
    assert sorted(table.rows + left) == list(range(100))
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.report.written == 30


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fails_at=st.integers(0, 12), workers=st.integers(1, 3), bad=st.sets(st.integers(0, 99), max_size=3))
def test_wherever_the_database_dies_no_row_is_written_twice_or_forgotten(fails_at, workers, bad):
    class Dying(Table):
        def write_metrics(self, rows):
            if self.calls >= fails_at:
                raise TimeoutError("no answer")
            super().write_metrics(rows)

    table = Dying(bad)
    try:
        report = BatchProcessor(table, workers, 10).batch_save_metrics(range(100))
        left = []
    except BatchInterrupted as error:
        report = error.report
        left = [n for start, stop in error.unwritten for n in range(start, 100 if stop is None else stop)]

    refused = [failure.index for failure in report.failures]
    assert sorted([*table.rows, *left, *refused]) == list(range(100))


def test_a_writer_that_refuses_everything_is_not_asked_for_ever():
    table = Table(range(100_000))

    with pytest.raises(BatchInterrupted, match="refused"):
        BatchProcessor(table, 1, 10, max_failures=20).batch_save_metrics(range(100_000))

    assert table.calls < 100


def test_flags_are_written_in_the_order_given(database_url):
    with catalog(database_url) as database:
        database.save_checkpoints([Checkpoint(id=f"c{n}", experiment_id="r1", step=n) for n in range(5)])
        rows = [{"experiment_id": "r1", "checkpoint_id": f"c{n}", "is_best_loss": True} for n in (1, 4, 2)]

        report = BatchProcessor(database, 4, 100).batch_update_best_flags(rows)

        best = database.get_checkpoints_by_experiment("r1", best_only=True)
    assert (report.written, report.transactions, [one.id for one in best]) == (3, 3, ["c2"])


def test_progress_is_told_with_rates_and_reaches_the_end():
    seen = []

    BatchProcessor(Table({5}), 1, 4).batch_save_checkpoints(list(range(10)), progress=seen.append)

    assert [(one.written, one.failed, one.total) for one in seen] == [(4, 0, 10), (7, 1, 10), (9, 1, 10)]
    assert all(one.rate > 0 for one in seen)


def catalog(url):
    database = EnhancedDatabaseConnection(url)
    database.save_experiment(Experiment(id="r1", name="baseline"))
    return database


def test_records_of_checkpoints_reach_a_real_database_and_refused_ones_are_told(database_url):
    rows = [Checkpoint(id=f"c{n}", experiment_id="r1", step=n) for n in range(100)]
    rows[40] = Checkpoint(id="c40", experiment_id="no such run")

    with catalog(database_url) as database:
        report = BatchProcessor(database, 4, 25).batch_save_checkpoints(rows)
        there = {one.id for one in database.get_checkpoints_by_experiment("r1")}

    assert there == {f"c{n}" for n in range(100)} - {"c40"}
    assert [(failure.index, type(failure.error)) for failure in report.failures] == [(40, RowRefused)]
    assert report.written == 99


def test_metrics_in_batches_cost_fewer_transactions_than_one_by_one(database_url):
    points = [Metric("r1", "loss", 1 / (n + 1), n, 100.0 + n) for n in range(1000)]

    with catalog(database_url) as database:
        report = BatchProcessor(database, 2, 250).batch_save_metrics(points)
        read = database.series("r1", "loss")

    assert (report.written, report.transactions, report.ok) == (1000, 4, True)
    assert read.values.tolist() == [point.metric_value for point in points]


def test_a_database_that_is_gone_interrupts_and_does_not_blame_rows(sqlite_url):
    database = catalog(sqlite_url)
    points = [Metric("r1", "loss", 0.5, n, 1.0 * n) for n in range(30)]

    def write(rows):
        if rows[0].step == 10:
            raise DatabaseUnreachable("the server is gone")
        database.write_metrics(rows)

    with database, pytest.raises(BatchInterrupted, match="the server is gone") as caught:
        BatchProcessor(database, 1, 10).process(points, write)
    assert caught.value.unwritten[0] == (10, 20)
    assert caught.value.report.failures == ()


def test_a_writer_without_the_method_is_refused_before_a_row_is_taken():
    with pytest.raises(OptionInvalid, match="object has no method write_metrics"):
        BatchProcessor(object()).batch_save_metrics(iter([1]))


@pytest.mark.parametrize("name", ["max_workers", "batch_size", "max_failures"])
def test_a_bound_below_one_is_refused(name):
    with pytest.raises(OptionInvalid, match=f"{name} is 0, expected 1 or more"):
        BatchProcessor(Table(), **{name: 0})


def test_the_interruption_survives_pickling():
    error = BatchInterrupted("stopped", report=BatchReport(written=3), unwritten=[(3, None)])

    again = pickle.loads(pickle.dumps(error))

    assert (again.report.written, again.unwritten, str(again)) == (3, ((3, None),), "stopped")


def test_a_source_that_fails_says_so_itself():
    def source():
        yield from range(10)
        raise KeyError("no such series")

    with pytest.raises(KeyError, match="no such series"):
        BatchProcessor(Table(), 1, 5).batch_save_metrics(source())
