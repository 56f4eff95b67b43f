"""Rank agreement: each brings a word, rank 0 makes one of them for all; what goes wrong on one is raised on all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.ranks.conversation import Conversation, Word
from model_checkpoint.engine.ranks.error_records import retold, told
from model_checkpoint.errors import CheckpointException, OptionInvalid

Decide = Callable[[list[Word]], Word]


def agree(ranks: Coordinator, topic: str, mine: Callable[[], Word], decide: Decide = lambda words: {}) -> Word:
    """What rank 0 makes of the words of all ranks; every rank makes this call.

    Example:
        >>> from model_checkpoint.distributed import LocalCoordinator
        >>> agree(LocalCoordinator(), "sum", lambda: {"n": 3}, lambda words: {"n": sum(one["n"] for one in words)})
        {'n': 3}
    """
    with Conversation(ranks, topic) as talk:
        return _lead(talk, mine, decide) if talk.leads else _follow(talk, mine)


def _lead(talk: Conversation, mine: Callable[[], Word], decide: Decide) -> Word:
    try:
        made = decide(talk.hear_all("mine", mine()))
    except Exception as error:  # told to all, then raised
        made_known = error if isinstance(error, CheckpointException) else retold(told(error, 0), talk.world_size)
        shared = talk.fail("made", made_known)
        if shared is error:
            raise
        raise shared from error
    except BaseException as error:
        talk.fail("made", error)
        raise
    talk.say("made", made)
    return made


def _follow(talk: Conversation, mine: Callable[[], Word]) -> Word:
    try:
        word = mine()
    except Exception as error:  # noqa: BLE001  # told to rank 0, whose answer is raised on every rank
        talk.say_error("mine", error)
        try:
            return talk.hear_leader("made")
        except CheckpointException as answer:
            raise answer from error
    except BaseException as error:
        talk.say_error("mine", error)
        raise
    talk.say("mine", word)
    return talk.hear_leader("made")


def require_same(words: list[Word], key: str, where: str) -> Any:
    """What all ranks say under ``key``; raise if they do not say the same.

    Example:
        >>> require_same([{"prefix": "a"}, {"prefix": "a"}], "prefix", "runs/a")
        'a'
    """
    first = words[0].get(key)
    for rank, word in enumerate(words):
        if word.get(key) != first:
            raise OptionInvalid(
                f"rank {rank} calls with {key}={word.get(key)!r}, rank 0 with {first!r}. Every rank must make the "
                "same call. Nothing was done.",
                where,
            )
    return first
