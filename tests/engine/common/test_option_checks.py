"""Which values options take: the least that is right, the most that is wrong, and what only looks right."""

import numpy as np
import pytest

from model_checkpoint.engine.common.option_checks import (
    as_step,
    require,
    require_bytes,
    require_selection,
    require_words,
)
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.options import CheckpointFormat


@pytest.mark.parametrize(
    "options",
    [
        {"overwrite": True},
        {"overwrite": "damaged"},
        {"strict": False},
        {"format": CheckpointFormat.SINGLE_FILE},
        {"format": "single_file"},
        {"progress": None},
        {"progress": True},
        {"progress": print},
        {"parity": None},
        {"parity": "xor"},
        {"verify": "full"},
    ],
)
def test_what_an_option_takes_is_taken(options):
    require(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"overwrite": 1}, r'overwrite must be True, False or "damaged", got 1'),
        ({"strict": 0}, r"strict must be True or False, got 0"),
        ({"strict": None}, r"strict must be True or False, got None"),
        ({"strict": print}, r"strict must be True or False, got <built-in"),
        ({"progress": "yes"}, r"progress must be None, True, False or a callable, got 'yes'"),
        ({"parity": "zip"}, r'parity must be None, "xor" or "pq", got \'zip\''),
        ({"strict": True, "format": "odd"}, r"format must be single_file, .* or .*, got 'odd'"),
    ],
)
def test_what_an_option_does_not_take_is_refused_with_what_it_takes(options, words):
    with pytest.raises(OptionInvalid, match=rf"^{words}.*Nothing was done\.$"):
        require(**options)


@pytest.mark.parametrize("step", [0, 1, 10**12, np.int64(3), np.uint8(0)])
def test_whole_numbers_from_zero_on_are_steps(step):
    assert (as_step(step), type(as_step(step))) == (int(step), int)


@pytest.mark.parametrize("step", [-1, True, False, 1.0, "1", None, np.int64(-1)])
def test_nothing_else_is_a_step(step):
    with pytest.raises(OptionInvalid, match=r"^step must be a whole number of 0 or more, got"):
        as_step(step)


def test_a_number_of_bytes_is_one_or_more():
    assert [require_bytes("limit", value) for value in (None, 1, np.int64(7))] == [None, 1, 7]
    for odd in (0, -1, True, 1.5, "64M"):
        with pytest.raises(OptionInvalid, match=r"^limit must be None or a whole number of bytes above 0, got"):
            require_bytes("limit", odd)


def test_words_are_texts_or_left_out():
    require_words(id=None, name="", best="x")
    with pytest.raises(OptionInvalid, match=r"^name must be a text, got 3\. Nothing was done"):
        require_words(id="x", name=3)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"parts": 3}, "parts must be a text or a list of texts, got 3"),
        ({"parts": ["a", 3]}, r"parts must be a text or a list of texts, got \['a', 3\]"),
        ({"rename": 3}, "rename must map texts to texts, or be a function of a text, got 3"),
        ({"rename": {"a": 3}}, r"rename must map texts to texts"),
        ({"rename": {3: "a"}}, r"rename must map texts to texts"),
        ({"rename": ["a"]}, r"rename must map texts to texts"),
        ({"types": [3]}, r"types must be a list of classes, got \[3\]"),
        ({"types": int}, r"types must be a list of classes"),
    ],
)
def test_what_selects_nothing_is_refused(wrong, words):
    with pytest.raises(OptionInvalid, match=rf"^{words}"):
        require_selection(**{"parts": None, "rename": None, "types": (), **wrong})


@pytest.mark.parametrize(
    "right", [{"parts": "a"}, {"parts": ["a"]}, {"parts": []}, {"rename": str.upper}, {"rename": {}}, {"types": [int]}]
)
def test_what_selects_something_is_taken(right):
    require_selection(**{"parts": None, "rename": None, "types": (), **right})
