"""Who is best, who wins a tie, what NaN means, and who is on the front; never by the order in which they came."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_checkpoint.errors import ExpressionInvalid, MetricIsNaN, OptionInvalid
from model_checkpoint.plan import MetricExpression, Ranking, pareto_front


@dataclass(frozen=True)
class Run:
    step: int | None
    created: str = "2026-01-01"
    metrics: dict = field(default_factory=dict, hash=False)

    @property
    def name(self):
        return f"run-{self.step}"


def runs(**series):
    """Runs of steps 1, 2, ... with these metrics; None is not measured."""
    length = len(next(iter(series.values())))
    return [
        Run(i + 1, metrics={name: values[i] for name, values in series.items() if values[i] is not None})
        for i in range(length)
    ]


def order(text, found, **options):
    ranking = Ranking.parse(text, known={name for run in found for name in run.metrics}, **options)
    return [run.step for run in ranking.order(found, [run.metrics for run in found])]


def test_losses_fall_and_all_else_rises():
    found = runs(val_loss=[0.5, 0.2, math.nan, None], acc=[0.9, 0.1, None, None])

    assert order("val_loss", found) == [2, 1]
    assert order("acc", found) == [1, 2]
    assert order("max:val_loss", found) == [1, 2]
    assert order("min:acc", found) == [2, 1]


def test_whole_numbers_truths_and_infinities_are_ranked_and_text_is_not():
    assert order("acc", runs(acc=[1, math.inf, "high", 0.5, True, 10**400])) == [2, 6, 5, 1, 4]


def test_an_expression_ranks():
    assert order("f1 - 0.1*latency", runs(f1=[0.9, 0.8, 0.7], latency=[5, 1, 0])) == [2, 3, 1]


def test_among_equals_the_newest_wins_or_the_oldest_if_so_asked():
    found = runs(loss=[1.0, 1.0, 0.5])

    assert order("loss", found) == [3, 2, 1]
    assert order("loss", found, tie="oldest") == [3, 1, 2]


def test_a_later_criterion_decides_among_equals_and_what_lacks_it_comes_last():
    found = runs(loss=[1.0, 1.0, 1.0, 1.0], f1=[0.1, None, 0.9, math.nan])

    assert order("loss, f1", found) == [3, 1, 4, 2]
    assert order("loss, min:f1", found) == [1, 3, 4, 2]


def test_nan_is_never_best_or_worst_or_an_error():
    found = runs(loss=[math.nan, math.inf, 1.0, None])

    assert order("loss", found) == [3, 2]
    assert order("loss", found, nan="worst") == [3, 2, 1]
    with pytest.raises(MetricIsNaN, match=r"run-1: loss is NaN there"):
        order("loss", found, nan="error")


@pytest.mark.parametrize("option", [{"tie": "random"}, {"nan": "best"}])
def test_an_unknown_rule_is_refused(option):
    with pytest.raises(OptionInvalid, match=r"must be one of"):
        Ranking.parse("loss", **option)


def test_a_broken_criterion_is_refused():
    with pytest.raises(ExpressionInvalid, match=r"expected a metric"):
        Ranking.parse("loss,")


values = st.one_of(st.none(), st.just(math.nan), st.integers(-3, 3), st.floats(-2, 2).map(lambda x: round(x, 1)))


@given(st.lists(st.tuples(values, values), min_size=1, max_size=8), st.randoms())
def test_the_order_does_not_hang_on_the_order_of_arrival(points, random):
    found = runs(a=[a for a, _ in points], b=[b for _, b in points])
    shuffled = random.sample(found, len(found))

    assert order("a, min:b", found) == order("a, min:b", shuffled)


def front(found):
    first, second = MetricExpression.parse("a"), MetricExpression.parse("min:b")
    return [run.step for run in pareto_front(found, [run.metrics for run in found], first, second)]


@given(st.lists(st.tuples(values, values), min_size=1, max_size=8), st.randoms())
def test_the_front_is_all_that_nothing_beats_and_of_equals_the_newest(points, random):
    found = runs(a=[a for a, _ in points], b=[b for _, b in points])
    rated = {
        run.step: (run.metrics["a"], -run.metrics["b"])
        for run in found
        if all(not math.isnan(run.metrics.get(name, math.nan)) for name in "ab")
    }

    def beaten(step):
        mine = rated[step]
        return any(
            other != step and (theirs[0] >= mine[0] and theirs[1] >= mine[1]) and (theirs != mine or other > step)
            for other, theirs in rated.items()
        )

    expected = {step for step in rated if not beaten(step)}
    assert set(front(found)) == expected
    assert front(random.sample(found, len(found))) == front(found)


def test_a_front_of_infinities_has_one():
    assert front(runs(a=[1], b=[math.inf])) == [1]
