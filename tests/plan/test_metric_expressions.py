"""An expression means what its text says, or is refused with the place where it goes wrong; nothing is ever run."""

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_checkpoint.errors import ExpressionInvalid
from model_checkpoint.plan.metric_expressions import MetricExpression, parse_criteria

METRICS = {"a": 6, "b": 1.5, "c": -2, "val_loss": 0.25, "train.loss": 8, "zero": 0}


def value(text, metrics=METRICS, known=()):
    return MetricExpression.parse(text, known=known).value(metrics)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", 6),
        ("a - 0.1*b", 5.85),
        ("a - b - c", 6.5),
        ("a / b / 2", 2.0),
        ("a + b * c", 3.0),
        ("(a + b) * c", -15.0),
        ("-a", -6),
        ("--a", 6),
        ("-(a - b) * -c", -9.0),
        ("1e-1*a + .5", 1.1),
        ("min(a, b, c) + max(a, b)", 4),
        ("abs(c)", 2),
        ("sqrt(a*a)", 6.0),
        ("log(exp(b))", 1.5),
        ("min:`train.loss` / 2", 4.0),
        ("train.loss", 8),
        ("min", None),
        ("max:min(a, c)", -2),
        ("  a  ", 6),
    ],
)
def test_arithmetic_is_that_of_paper(text, expected):
    found = value(text)

    assert found == pytest.approx(expected) if expected is not None else found is None


@pytest.mark.parametrize(
    ("text", "minimise"),
    [
        ("loss", True),
        ("val_error", True),
        ("perplexity", True),
        ("Val/Loss".replace("/", "_"), True),
        ("loss_rate", False),
        ("acc", False),
        ("max:loss", False),
        ("min:acc", True),
        ("min : acc", True),
        ("a - b", False),
        ("min:a + val_loss", True),
        ("max:a - val_loss", False),
    ],
)
def test_the_direction_is_said_or_known_by_the_name(text, minimise):
    assert MetricExpression.parse(text).minimise is minimise


def test_a_compound_with_a_loss_in_it_must_say_its_direction():
    with pytest.raises(ExpressionInvalid, match=r"'val_loss' gets better downwards.*say \"min:0\.5\*val_loss \+ a\""):
        MetricExpression.parse("0.5*val_loss + a")


@pytest.mark.parametrize("name", ["val/loss", "top-5 acc", "f1 (macro)", "min:x", "2nd", "a,b", "best_loss"])
def test_a_text_that_is_a_known_metric_letter_for_letter_is_that_metric(name):
    found = MetricExpression.parse(name, known=[name])

    assert found.names == (name,)
    assert found.value({name: 3}) == 3


def test_a_known_metric_of_an_odd_name_takes_a_direction_too():
    found = MetricExpression.parse("max:val/loss", known=["val/loss"])

    assert (found.names, found.minimise) == (("val/loss",), False)


def test_odd_names_go_into_backticks():
    assert value("`top-5 acc` - 0.1*`f1 (macro)`", {"top-5 acc": 1, "f1 (macro)": 5}) == 0.5


def test_best_loss_reads_as_loss_unless_a_metric_is_called_so():
    assert MetricExpression.parse("best_val_loss").names == ("val_loss",)
    assert MetricExpression.parse("best_val_loss", known=["best_val_loss"]).names == ("best_val_loss",)


def test_a_missing_metric_or_one_that_is_no_number_gives_no_value():
    assert value("a + missing") is None
    assert value("a", {"a": "high"}) is None


@pytest.mark.parametrize("text", ["a / zero", "log(c)", "sqrt(c)", "exp(10000 * a)", "min(a, nan)", "max(nan, a)"])
def test_what_arithmetic_has_no_answer_for_is_nan(text):
    assert math.isnan(value(text, METRICS | {"nan": math.nan}))


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("", 0, r"expected a metric, a number or '\(' at character 1, got the end"),
        ("val_f1 - * 2", 9, r"expected a metric.*at character 10, got '\*'"),
        ("a b", 2, r"expected an operator at character 3, got 'b'"),
        ("a + 2b", 5, r"expected an operator at character 6, got 'b'"),
        ("(a + b", 6, r"expected '\)' or an operator at character 7, got the end"),
        ("a)", 1, r"expected an operator at character 2, got '\)'"),
        ("a ** b", 3, r"expected a metric.*got '\*'"),
        ("a ^ b", 2, r"expected an operator at character 3, got '\^'"),
        ("a.b()", 0, r"there is no function 'a\.b'"),
        ("sqr(a)", 0, r"Did you mean 'sqrt'\?"),
        ("sqrt(a, b)", 0, r"sqrt takes one value, got 2"),
        ("min(a)", 0, r"min takes two or more values, got 1"),
        ("1 + 2", 0, r"has no metric in it"),
        ("a, ", 3, r"expected a metric"),
        ("__import__('os')", 0, r"there is no function '__import__'"),
        ("`a", 0, r"expected a metric"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text, at, said):
    with pytest.raises(ExpressionInvalid, match=said) as caught:
        parse_criteria(text)

    assert caught.value.at == at
    assert str(caught.value).endswith(f"\n  {text}\n  {' ' * at}^")
    assert pickle.loads(pickle.dumps(caught.value)).at == at


def test_a_near_miss_is_told():
    with pytest.raises(ExpressionInvalid, match=r"Did you mean 'top-5 acc'\?"):
        MetricExpression.parse("top-5 ac", known=["top-5 acc"])


@pytest.mark.parametrize("text", ["(" * 60 + "a" + ")" * 60, "-" * 60 + "a", "min(" * 60 + "a"])
def test_too_much_inside_each_other_is_refused_before_the_stack_ends(text):
    with pytest.raises(ExpressionInvalid, match=r"at most 50 parentheses or signs"):
        MetricExpression.parse(text)


@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("-", ""), ("abs(", ")")])
def test_fifty_inside_each_other_are_read_and_one_more_is_not(before, after):
    assert MetricExpression.parse(before * 50 + "a" + after * 50).names == ("a",)

    with pytest.raises(ExpressionInvalid, match=r"at most 50 parentheses or signs"):
        MetricExpression.parse(before * 51 + "a" + after * 51)


def test_a_whole_number_that_no_float_can_say_is_still_the_largest():
    assert MetricExpression.parse("max(a, b)").value({"a": 10**400, "b": 1}) == 10**400


def test_an_overlong_text_is_refused():
    with pytest.raises(ExpressionInvalid, match=r"at most 2000 characters, got 4001"):
        MetricExpression.parse("a+" * 2000 + "a")


def test_one_expression_is_not_two():
    with pytest.raises(ExpressionInvalid, match=r"one expression is meant here, got 2"):
        MetricExpression.parse("a, b")


@given(st.text(max_size=40) | st.text("ab +-*/(),.1`:minlog", max_size=40))
def test_any_text_is_read_or_refused_and_nothing_else_happens(text):
    try:
        criteria = parse_criteria(text)
    except ExpressionInvalid as error:
        criteria, place = (), error.at
    else:
        place = 0

    assert 0 <= place <= len(text)
    assert all(isinstance(one.value({"a": 1.0, "b": 2}), (int, float, type(None))) for one in criteria)


numbers = st.integers(-50, 50) | st.floats(-50, 50, allow_nan=False).map(lambda x: round(x, 3))


@given(
    st.recursive(
        numbers.map(lambda n: f"({n})") | st.sampled_from(["a", "b"]),
        lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        max_leaves=8,
    ),
    numbers,
    numbers,
)
def test_the_value_is_that_of_python_itself(text, a, b):
    if "a" not in text and "b" not in text:
        text = f"a + {text}"

    assert value(text, {"a": a, "b": b}) == pytest.approx(eval(text, {"a": a, "b": b}))
