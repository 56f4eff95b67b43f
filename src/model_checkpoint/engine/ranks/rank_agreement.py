"""Rank agreement: each brings a word, rank 0 makes one of them for all; what goes wrong on one is raised on all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.ranks.conversation import Conversation, as_told
from model_checkpoint.engine.ranks.error_records import retold, told
from model_checkpoint.engine.ranks.words import Word
from model_checkpoint.errors import CheckpointException, OptionInvalid, RankLost

log = logging.getLogger("model_checkpoint.ranks")

Decide = Callable[[list[Word]], Word]
FindOut = Callable[[], Word | None]  # what rank 0 has made, by what can be seen of it


def agree(
    ranks: Coordinator,
    topic: str,
    mine: Callable[[], Word],
    decide: Decide = lambda words: {},
    *,
    find_out: FindOut | None = None,
) -> Word:
    """What rank 0 makes of the words of all ranks; every rank makes this call.

    Where others can see what rank 0 makes, and it is lost before it has said so, they ``find_out`` whether it was made.

    Example:
        >>> from model_checkpoint.distributed import LocalCoordinator
        >>> agree(LocalCoordinator(), "sum", lambda: {"n": 3}, lambda words: {"n": sum(one["n"] for one in words)})
        {'n': 3}
    """
    with Conversation(ranks, topic) as talk:
        return _lead(talk, mine, decide, seen=find_out is not None) if talk.leads else _follow(talk, mine, find_out)


def _lead(talk: Conversation, mine: Callable[[], Word], decide: Decide, *, seen: bool) -> Word:
    try:
        words = talk.hear_all("mine", mine())
        talk.require_heard()
        made = decide(words)
        if not seen:  # else it is made, whatever the others were told
            talk.require_heard()
    except Exception as error:  # told to all, then raised
        over = talk.given_up()
        if over is not None and "error" not in over:
            return over
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


def _follow(talk: Conversation, mine: Callable[[], Word], find_out: FindOut | None) -> Word:
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
    try:
        return talk.hear_leader("made")
    except RankLost as error:
        found = find_out() if find_out is not None and talk.gone is not None else None
        if found is None:
            raise
        talk.end_for_leader(found)
        log.warning("rank 0 is lost (%s), but what it was to do is done", as_told(error))
        return found


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
