"""Whole columns of a training loop leave in the catalog exactly what the same points leave one by one."""

import math
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, Metric, RowRefused
from model_checkpoint.database.values.point_columns import columns_of

values = st.floats(allow_nan=True) | st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf])
calls = st.tuples(
    st.sampled_from([100.0, 100.5, 101.0, 102.0]),
    st.integers(-3, 6),
    st.dictionaries(st.sampled_from(["loss", "acc", "lr"]), values, max_size=3),
)


def contents(db, run):
    points = [tuple(point)[1:] for point in db.get_metrics(run)]
    sums = [
        (
            one.metric_name,
            one.count,
            one.nan_count,
            one.last,
            one.last_step,
            one.min,
            one.min_step,
            one.max,
            one.max_step,
        )
        for one in db.summaries(run)
    ]
    return repr((points, sums))


@pytest.fixture(scope="module")
def memory():
    with EnhancedDatabaseConnection("sqlite://") as connection:
        yield connection


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(calls, max_size=6), max_size=4))
def test_columns_leave_what_single_points_leave(memory, batches):
    columns, points = (Experiment(id=uuid.uuid4().hex, name=name) for name in ("columns", "points"))
    memory.save_experiment(columns)
    memory.save_experiment(points)

    for batch in [*batches, *batches[:2]]:  # some of them again, as a replay would
        new = memory.write_calls(columns.id, batch)
        single = [Metric(points.id, name, value, step, at) for at, step, some in batch for name, value in some.items()]
        assert new == memory.write_metrics(single)

    assert contents(memory, columns.id) == contents(memory, points.id)


def test_the_calls_of_a_loop_are_columns_and_nothing_is_left_over():
    columns, rest = columns_of([(10.0 + step, step, {"loss": 0.5, "acc": float(step)}) for step in range(5)])

    assert rest == []
    assert {name: len(column.values) for name, column in columns.items()} == {"loss": 5, "acc": 5}


@pytest.mark.parametrize(
    "call",
    [(10.0, 1, {"x": math.nan}), (10.0, 1, {"x": 1}), (10.0, True, {"x": 1.0}), (math.inf, 1, {"x": 1.0})],
    ids=["nan", "int value", "bool step", "endless time"],
)
def test_what_is_out_of_the_ordinary_goes_point_by_point(call):
    columns, rest = columns_of([call])

    assert columns == {}
    assert len(rest) == 1


def test_a_call_of_a_run_nobody_knows_is_refused():
    with (
        EnhancedDatabaseConnection("sqlite://") as db,
        pytest.raises(RowRefused, match="experiment 'nobody' is not in the catalog"),
    ):
        db.write_calls("nobody", [(10.0, 1, {"x": 1.0})])


def test_many_points_go_to_sqlite_in_few_statements():
    """Its driver lets other threads run with each statement: one for every point made a training loop wait for each."""
    said = []

    def look(connection, cursor, statement, parameters, context, many):
        if statement.startswith("INSERT INTO experiment_metrics"):
            said.append(len(parameters) if many else 1)

    with EnhancedDatabaseConnection("sqlite://") as db:
        db.save_experiment(Experiment(id="r1", name="baseline"))
        event.listen(Engine, "before_cursor_execute", look)
        try:
            db.write_calls("r1", [(100.0 + step, step, {"loss": 1 / (step + 1)}) for step in range(1000)])
        finally:
            event.remove(Engine, "before_cursor_execute", look)
        points = db.get_metrics("r1", "loss")

    assert [(one.step, one.metric_value) for one in points] == [(step, 1 / (step + 1)) for step in range(1000)]
    assert 1 <= sum(said) <= 1000 // 100
