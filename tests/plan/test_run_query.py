"""One line of text that chooses runs."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_checkpoint.plan.run_query import MOST_CHARACTERS, QueryInvalid, parse_query

NAMES = {"val_loss", "best.val_loss", "lr", "optimizer", "train/loss"}
ROW = {
    "val_loss": 0.25,
    "lr": 1e-3,
    "optimizer": "AdamW",
    "train/loss": 2,
    "tag": ["baseline", "paper"],
    "status": "alive",
    "text": "digits/Big-run r17 a note",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("val_loss < 0.3", True),
        ("val_loss<0.25", False),
        ("val_loss <= 0.25 lr >= 1e-3", True),
        ("-val_loss < 0.3", False),
        ("best.val_loss < 0.3", False),  # of what a row does not have nothing is so
        ("-best.val_loss < 0.3", True),
        ("optimizer = adamw", True),
        ("optimizer != adamw", False),
        ('optimizer = "adam w"', False),
        ("optimizer > 1", False),  # a text is neither more nor less than a number
        ("-optimizer > 1", True),
        ("train/loss > 1", True),
        ("`train/loss` > 1", True),
        ("tag:base", True),
        ("tag:aper", False),
        ("-tag:failed status:alive", True),
        ('tag:"paper"', True),
        ("big-run", True),
        ('"a note"', True),
        ('-"a note"', False),
        ("r17 nothing", False),
        ("  val_loss  <  0.3   tag:paper ", True),
    ],
)
def test_a_row_is_chosen_by_all_of_its_terms(text, expected):
    assert parse_query(text, NAMES).matches(ROW) is expected


@pytest.mark.parametrize(
    ("text", "at", "length", "suggestion", "said"),
    [
        ("tag:a vla_loss < 1", 6, 8, "val_loss", "Did you mean 'val_loss'"),
        ("zzz < 1", 0, 3, "", "There are best.val_loss, lr"),
        ("tga:a", 0, 3, "tag:", "Did you mean tag:"),
        ("foo:a", 0, 3, "", "There are status"),
        ("val_loss <", 9, 1, "", "Write a value"),
        ("val_loss < abc", 11, 3, "", "needs a number"),
        ("tag:", 0, 4, "", "Write a word"),
        ('say "never closed', 4, 13, 'say "never closed"', "never closed"),
        ("x" * (MOST_CHARACTERS + 5), MOST_CHARACTERS, 5, "", "at most 2000 characters"),
    ],
)
def test_what_cannot_be_read_is_told_with_place_and_cure(text, at, length, suggestion, said):
    with pytest.raises(QueryInvalid, match=said) as caught:
        parse_query(text, NAMES)

    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.at, error.length, error.suggestion) == (at, length, suggestion)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(("count", "said"), [(6, r"There are a0, a1, a2, a3, a4, a5\.$"), (7, r"a4, a5, \.\.\.\.$")])
def test_of_many_names_six_are_told_and_that_there_are_more(count, said):
    with pytest.raises(QueryInvalid, match=said):
        parse_query("zzz < 1", {f"a{i}" for i in range(count)})


def read(text, names):
    """What the text is read as, or the refusal."""
    try:
        return parse_query(text, names)
    except QueryInvalid as error:
        return error


@given(st.text(max_size=200) | st.text(alphabet='-"`<>=!: ab', max_size=60))
def test_any_text_is_read_or_refused_with_a_place_in_it(text):
    found = read(text, {"a", "b"})

    if isinstance(found, QueryInvalid):
        assert 0 <= found.at <= len(text)
        assert found.length >= 0
    else:
        assert found.matches({"a": 1.0, "b": "x"}) in (True, False)


def test_a_search_has_at_most_fifty_terms():
    assert len(parse_query("a " * 50).terms) == 50
    with pytest.raises(QueryInvalid, match="at most 50 terms"):
        parse_query("a " * 51)
