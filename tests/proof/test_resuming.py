"""A killed training ends as the unbroken one under ours; what the trainers' own resume does is tried beside it."""

from pathlib import Path

import pytest
from proof.resuming.__main__ import TRAINERS, main, trials_of
from proof.resuming.table import markdown, short_rows, way_rows
from proof.resuming.trial import Ending, Trial, TrialBroken, tried
from proof.resuming.way import Way

ROOT = Path(__file__).parents[2]
# Each takes most of a minute; `make proof` tries all, and every trainer has kill tests of its own.
ONE_KIND = {"a loop by hand": "workers", "Hugging Face Trainer": "persistent workers"}
PAGES = {
    "a loop by hand": "loop",
    "Hugging Face Trainer": "huggingface",
    "Lightning": "lightning",
    "Accelerate": "accelerate",
    "Keras on torch": "keras",
    "Keras on JAX": "keras",
}


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ONE_KIND)
def test_a_killed_training_ends_as_the_unbroken_one_under_ours(trainer, record_property):
    """What theirs comes to is chance, but for a few: it is recorded, and counted by ``make proof``."""
    trials = list(trials_of(trainer, kills=1, kinds=[ONE_KIND[trainer]]))

    assert [one.ending for one in trials if one.ours] == [Ending.SAME]
    theirs = [one for one in trials if not one.ours]
    assert theirs  # each of them resumed, or failed to
    for one in theirs:
        record_property(one.way, one.ending.name)


def trial(trainer, way, ending, *, ours=False):
    return Trial(trainer, way, ours, "workers", ending)


def test_only_an_end_like_the_unbroken_one_counts_as_the_same():
    trials = [trial("A", "own", ending) for ending in Ending] + [trial("A", "Run", Ending.SAME, ours=True)]

    assert short_rows(trials)[1:] == [
        ["under model_checkpoint", "**1 of 1**"],
        ["by the trainer's own checkpoints", "1 of 3"],
    ]
    assert way_rows(trials)[1:] == [["A", "`own`", "3", "1", "1", "1"], ["A", "`Run`", "1", "1", "0", "0"]]
    assert "| A | workers | `own` | same, other, fails |" in markdown(trials, {"kernel": "6"})


def never_twice(root, out, *, kind, pause):
    import os

    Path(f"{out}.batches").write_bytes(b"..")
    Path(out).write_text(str(os.getpid()))


def test_a_training_that_does_not_end_alike_unbroken_is_no_trial(tmp_path):
    way = Way("chance", never_twice, ("any",), lambda root: True)

    with pytest.raises(TrialBroken, match="chance, any: two unbroken trainings end differently"):
        list(tried(way, "any", kills=1, folder=tmp_path))


def rows_under(heading):
    text = (ROOT / "docs" / "resuming.md").read_text()
    return text.partition(f"## {heading}\n\n")[2].partition("\n\n")[0].splitlines()[2:]


def test_the_readme_quotes_the_report_word_for_word():
    short = rows_under("In short")

    assert len(short) == 2
    assert [row for row in short if row not in (ROOT / "README.md").read_text()] == []


def test_the_page_of_each_trainer_quotes_its_rows_word_for_word():
    rows = rows_under("By way")

    assert {row.split(" | ")[0].removeprefix("| ") for row in rows} == set(TRAINERS)
    for row in rows:
        page = PAGES[row.split(" | ")[0].removeprefix("| ")]
        assert row in (ROOT / "docs" / f"{page}.md").read_text(), page


def test_in_the_report_all_of_ours_end_the_same():
    ours = rows_under("In short")[0].split("**")[1::2]

    assert len(ours) == len(TRAINERS)
    assert all(count.split(" of ")[0] == count.split(" of ")[1] for count in ours)


def test_an_unknown_trainer_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "Fabric"])

    assert "choose from" in capsys.readouterr().err
