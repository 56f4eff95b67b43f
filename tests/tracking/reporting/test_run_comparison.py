"""Runs side by side: settings that differ, every metric, and who is best by it."""

import pytest

from model_checkpoint.database.records import Experiment
from model_checkpoint.database.summed_records import MetricSummary
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.tracking.reporting.run_comparison import compare_runs


def summary(run, name, low, high, last=None):
    return MetricSummary(
        experiment_id=run,
        metric_name=name,
        count=3,
        nan_count=0 if low is not None else 3,
        last=high if last is None else last,
        last_step=9,
        last_at=0.0,
        min=low,
        min_step=None if low is None else 1,
        max=high,
        max_step=None if high is None else 2,
    )


@pytest.fixture
def runs():
    return [
        Experiment(id="a" * 32, name="base", config={"opt": {"lr": 0.1, "name": "sgd"}, "seed": 1}),
        Experiment(id="b" * 32, name="fast", config={"opt": {"lr": 0.2, "name": "sgd"}, "seed": 1, "warm": True}),
    ]


@pytest.fixture
def comparison(runs):
    a, b = (run.id for run in runs)
    return compare_runs(
        runs,
        {
            a: [summary(a, "val_loss", 0.3, 0.9), summary(a, "acc", 0.1, 0.8)],
            b: [summary(b, "val_loss", 0.2, 0.8), summary(b, "acc", 0.1, 0.8), summary(b, "odd", None, None, 0.0)],
        },
    )


def test_only_settings_that_differ_are_told_by_their_dotted_names(comparison):
    assert dict(comparison.settings) == {"opt.lr": (0.1, 0.2), "warm": (None, True)}


def test_the_best_run_is_told_by_each_metric_in_its_own_direction_and_of_equals_the_first(comparison, runs):
    best = {row.name: row.best for row in comparison.metrics}

    assert best == {"acc": runs[0].id, "odd": None, "val_loss": runs[1].id}


def test_a_metric_a_run_never_logged_is_a_gap(comparison):
    odd = next(row for row in comparison.metrics if row.name == "odd")

    assert odd.summaries[0] is None
    assert odd.best_value(0) is None


def test_the_comparison_reads_well_as_markdown_and_as_text(comparison):
    markdown, text = comparison.render(), comparison.render("text")

    assert "| val_loss (min) | 0.3 / 0.9 | 0.2* / 0.8 |" in markdown
    assert "| opt.lr | 0.1 | 0.2 |" in markdown
    assert "val_loss (min)  0.3 / 0.9   0.2* / 0.8" in text
    assert "|" not in text


def test_runs_of_one_name_are_told_apart(runs):
    twins = [runs[0], Experiment(id="c" * 32, name="base")]

    assert "base (aaaaaaaa)" in compare_runs(twins, {}).render("text")


def test_numbers_and_text_that_look_alike_differ():
    one, two = Experiment(id="a", name="a", config={"x": 1}), Experiment(id="b", name="b", config={"x": "1"})

    assert compare_runs([one, two], {}).settings == {"x": (1, "1")}


def test_another_format_is_refused(comparison):
    with pytest.raises(OptionInvalid, match="format must be 'markdown' or 'text', got 'html'"):
        comparison.render("html")
