"""Points are stored exactly and once; summaries equal what the points say."""

import math
import random
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, Metric, RowRefused
from model_checkpoint.errors import OptionInvalid, WrongReference

NAN, INF = float("nan"), float("inf")
STEPS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5)
TIMES = st.floats(0, 4e9) | st.integers(0, 3).map(float)
POINTS = st.lists(st.tuples(st.sampled_from("ab"), STEPS, TIMES, st.floats()), max_size=30)


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def stored(db, run="r1"):
    return {(m.metric_name, m.step, m.timestamp, repr(m.metric_value)) for m in db.get_metrics(run)}


@pytest.mark.parametrize(
    "value",
    [NAN, INF, -INF, 0.1, 1e308, 5e-324, 2.2250738585072014e-308, -1.7976931348623157e308, 1 / 3, 1e22, 123456789.125],
)
def test_a_number_comes_back_exactly(db, value):
    db.save_metric(Metric("r1", "loss", value, 1, 1234567890.1234567))

    (point,) = db.get_metrics("r1")
    assert repr(point.metric_value) == repr(value)
    assert point.timestamp == 1234567890.1234567
    assert same(db.series("r1", "loss").values[0], value)
    assert same(db.summaries("r1")[0].last, value)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(POINTS, max_size=4))
def test_any_batches_in_any_order_are_all_there_once_and_summed_up(db, batches):
    run = uuid.uuid4().hex
    db.save_experiment(Experiment(id=run, name="x"))

    rows = [[Metric(run, name, value, step, at) for name, step, at, value in batch] for batch in batches]
    written = sum(db.write_metrics(batch) for batch in rows)
    again = sum(db.write_metrics(batch) for batch in rows)

    expected = {(m.metric_name, m.step, m.timestamp, repr(m.metric_value + 0.0)) for batch in rows for m in batch}
    found = db.get_metrics(run)
    assert (written, again) == (len(expected), 0)
    assert len(found) == len(expected)
    # of one moment two values are both kept, the second a hair later
    assert sorted((m.metric_name, m.step, repr(m.metric_value)) for m in found) == sorted(
        (n, s, v) for n, s, _, v in expected
    )
    for summary in db.summaries(run):
        points = [m for m in found if m.metric_name == summary.metric_name]
        real = [m for m in points if not math.isnan(m.metric_value)]
        assert (summary.count, summary.nan_count) == (len(points), len(points) - len(real))
        assert (summary.last_step, summary.last_at) == (points[-1].step, points[-1].timestamp)
        assert same(summary.last, points[-1].metric_value)
        low = min(real, key=lambda m: (m.metric_value, m.step), default=None)
        high = max(real, key=lambda m: (m.metric_value, -m.step), default=None)
        assert (summary.min, summary.min_step) == ((low.metric_value, low.step) if low else (None, None))
        assert (summary.max, summary.max_step) == ((high.metric_value, high.step) if high else (None, None))


def test_the_same_points_twice_are_one(db):
    points = [Metric("r1", "loss", 1 / (step + 1), step, 1000.0 + step) for step in range(50)]

    assert db.write_metrics(points) == 50
    assert db.write_metrics(reversed(points)) == 0
    assert db.write_metrics([*points[:10], Metric("r1", "loss", 9.0, 7, 5.0)]) == 1
    assert db.summaries("r1")[0].count == 51


def test_two_values_of_one_moment_are_both_kept(db):
    """A coarse clock must not swallow a point."""
    both = [Metric("r1", "loss", 0.5, 1, 10.0), Metric("r1", "loss", 0.25, 1, 10.0)]

    assert (db.write_metrics(both), db.write_metrics(both[::-1]), db.write_metrics(both[:1])) == (2, 0, 0)
    assert sorted(point.metric_value for point in db.get_metrics("r1")) == [0.25, 0.5]


def test_names_of_metrics_equal_only_themselves(db):
    names = ["loss", "Loss", "loss ", "löss", "a/b.c", "%s", "'; DROP TABLE experiments; --"]

    db.write_metrics([Metric("r1", name, float(i), 1, 1.0) for i, name in enumerate(names)])

    assert {point.metric_name: point.metric_value for point in db.get_metrics("r1")} == {
        name: float(i) for i, name in enumerate(names)
    }
    assert [point.metric_value for point in db.get_metrics("r1", "Loss")] == [1.0]


def test_points_are_found_by_name_and_step(db):
    db.write_metrics([Metric("r1", name, float(step), step, 1.0) for name in "ba" for step in range(5)])

    found = db.get_metrics("r1", step_range=(1, 2))
    assert [(point.metric_name, point.step) for point in found] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert db.get_metrics("r1", "nothing") == []


def test_a_batch_with_a_wrong_row_leaves_nothing(db):
    good = Metric("r1", "loss", 0.5, 1, 1.0)

    with pytest.raises(RowRefused, match=r"experiment 'nobody' is not in the catalog\. Save it first"):
        db.write_metrics([good, Metric("nobody", "loss", 0.5, 1, 1.0)])
    with pytest.raises(RowRefused, match="metric name: at most 250 characters"):
        db.write_metrics([good, Metric("r1", "x" * 251, 0.5, 1, 1.0)])
    for wrong, message in [
        (Metric("r1", "loss", "high"), "metric 'loss': must be a number, got str"),
        (Metric("r1", "loss", "0.5"), "metric 'loss': must be a number, got the text '0.5'"),
        (Metric("r1", "loss", 2**60 + 1), "metric 'loss': .* has no exact float"),
        (Metric("r1", "loss", 0.5, 1.5), "step of metric 'loss': must be a whole number"),
        (Metric("r1", "loss", 0.5, 2**63), "step of metric 'loss': .* does not fit 64 bits"),
        (Metric("r1", "loss", 0.5, 1, NAN), "metric 'loss': its time must be finite"),
    ]:
        with pytest.raises(RowRefused, match=message):
            db.write_metrics([good, wrong])

    assert db.get_metrics("r1") == []


def test_numbers_of_frameworks_are_numbers(lite):
    lite.write_metrics(
        [Metric("r1", "a", np.float32(0.5), np.int64(3), 1), Metric("r1", "b", True), Metric("r1", "c", 7)]
    )

    assert [point.metric_value for point in lite.get_metrics("r1")] == [0.5, 1.0, 7.0]
    assert lite.get_metrics("r1", "a")[0].step == 3


def test_a_series_is_columns_by_step(db):
    order = list(range(300))
    random.Random(7).shuffle(order)
    db.write_metrics([Metric("r1", "loss", step / 2, step, 1.0) for step in order])

    series = db.series("r1", "loss")
    assert series.steps.tolist() == list(range(300))
    assert series.values.tolist() == [step / 2 for step in range(300)]
    assert db.series("r1", "loss", since=290, limit=3).steps.tolist() == [291, 292, 293]
    assert len(db.series("r1", "other")) == 0
    with pytest.raises(WrongReference, match="experiment 'nobody'"):
        db.series("nobody", "loss")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.floats(), min_size=1, max_size=200), buckets=st.integers(1, 40))
def test_thinning_hides_no_extreme_and_no_nan(lite, values, buckets):
    """Whoever looks at the chart sees the same peaks, and sees that it went wrong."""
    run = uuid.uuid4().hex
    lite.save_experiment(Experiment(id=run, name="x"))
    lite.write_metrics([Metric(run, "loss", value, step * 3, 1.0) for step, value in enumerate(values)])

    thin = lite.series(run, "loss", buckets=buckets)

    whole = lite.series(run, "loss")
    assert len(thin) <= 3 * buckets
    pairs = dict(zip(whole.steps.tolist(), whole.values.tolist(), strict=True))
    assert all(same(pairs[step], value) for step, value in zip(thin.steps.tolist(), thin.values.tolist(), strict=True))
    assert thin.steps.tolist() == sorted(thin.steps.tolist())
    finite = [value for value in values if math.isfinite(value)]
    kept = [value for value in thin.values.tolist() if math.isfinite(value)]
    assert (not finite) or (min(kept), max(kept)) == (min(finite), max(finite))
    assert (len(finite) < len(values)) == (len(kept) < len(thin))


def test_thinning_works_across_chunks(lite):
    count = 45_000
    lite.write_metrics([Metric("r1", "loss", math.sin(step / 500), step, 1.0) for step in range(count)])

    thin = lite.series("r1", "loss", buckets=50)

    assert len(thin) <= 100
    assert (thin.values.min(), thin.values.max()) == (
        min(math.sin(s / 500) for s in range(count)),
        max(math.sin(s / 500) for s in range(count)),
    )


@pytest.mark.parametrize(("name", "value"), [("limit", 0), ("buckets", 0)])
def test_a_series_of_nothing_is_refused(lite, name, value):
    with pytest.raises(OptionInvalid, match=f"{name}: must be 1 or more, got 0"):
        lite.series("r1", "loss", **{name: value})


def test_threads_may_write_the_same_series(db):
    def write(worker):
        for start in range(0, 100, 20):
            db.write_metrics(
                [Metric("r1", "loss", float(worker), step, float(worker)) for step in range(start, start + 20)]
            )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))

    assert db.summaries("r1")[0].count == 800
    assert len(db.get_metrics("r1")) == 800


def test_a_file_replaced_under_our_feet_is_noticed(tmp_path):
    """Numbers of runs and names are remembered; another database has others."""
    url = f"sqlite:///{tmp_path}/a.db"
    with EnhancedDatabaseConnection(url) as db:
        db.save_experiment(Experiment(id="r0", name="x"))
        db.save_experiment(Experiment(id="r1", name="x"))
        db.write_metrics([Metric("r1", "loss", 0.5, 1, 1.0)])
    with EnhancedDatabaseConnection(url, lazy=True) as db:
        db._experiment_numbers["r1"] = 77  # as if remembered from the file that was here

        assert db.write_metrics([Metric("r1", "loss", 0.25, 2, 1.0)]) == 1
        assert len(db.get_metrics("r1")) == 2
