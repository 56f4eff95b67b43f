"""Whose words are forgotten is told by their keys alone, whatever is in the name of a topic."""

from model_checkpoint.distributed.coordinators.kept_words import KeptWords


def test_a_topic_may_have_any_name():
    kept = KeptWords()
    for topic in ("a/b", "a/c", "a-b", "hand over"):
        for number in range(1, 9):
            assert kept.note(f"{topic}-{number}/vote/0") == kept.note(f"{topic}-{number}/vote/1") == {}

    for topic in ("a/b", "a/c", "a-b", "hand over"):
        gone = {f"{topic}-1/vote/0", f"{topic}-1/vote/1"}
        assert kept.note(f"{topic}-9/vote/0") == {f"{topic}-1": gone}
