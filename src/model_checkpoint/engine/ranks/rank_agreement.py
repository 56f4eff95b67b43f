"""Rank agreement: each brings a word, rank 0 makes one of them for all; what goes wrong on one is raised on all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.ranks.conversation import Conversation, as_told
from model_checkpoint.engine.ranks.error_records import retold, told
from model_checkpoint.engine.ranks.words import Word
from model_checkpoint.errors import CheckpointException, OptionInvalid, RankLost
from model_checkpoint.events import Emit
from model_checkpoint.name_lists import some_of

log = logging.getLogger("model_checkpoint.ranks")

Decide = Callable[[list[Word]], Word]

_LONGEST_VALUE = 200  # characters of what a rank calls with


@dataclass(frozen=True, slots=True)
class Deed:
    """What rank 0 does, for others to see, once every rank knows what was agreed and has voted for it."""

    vote: Callable[[Word], Word]  # each rank takes note of what was agreed; an error votes against it
    act: Callable[[], None]
    find_out: Callable[[], bool]  # whether it was done; if not, it must not be done any more


def agree(
    ranks: Coordinator,
    topic: str,
    mine: Callable[[], Word],
    decide: Decide = lambda words: {},
    *,
    deed: Deed | None = None,
) -> Word:
    """What rank 0 makes of the words of all ranks; every rank makes this call.

    With a ``deed`` that is done upon it; if rank 0 is lost before it has said so, the others find out whether it was.

    Example:
        >>> from model_checkpoint.distributed import LocalCoordinator
        >>> agree(LocalCoordinator(), "sum", lambda: {"n": 3}, lambda words: {"n": sum(one["n"] for one in words)})
        {'n': 3}
    """
    return agree_at_work(ranks, topic, lambda emit: mine(), decide, deed=deed)


def agree_at_work(
    ranks: Coordinator, topic: str, work: Callable[[Emit], Word], decide: Decide, *, deed: Deed | None = None
) -> Word:
    """The same, where a rank may work long for its word: the bytes it moves meanwhile are signs of life."""
    with Conversation(ranks, topic) as talk:

        def mine() -> Word:
            return work(talk.moved)

        return _lead(talk, mine, decide, deed) if talk.leads else _follow(talk, mine, deed)


def _lead(talk: Conversation, mine: Callable[[], Word], decide: Decide, deed: Deed | None) -> Word:
    try:
        words = talk.hear_all("mine", mine())
        talk.require_heard()
        made = decide(words)
        if deed is not None:
            talk.say("plan", made)
            talk.hear_all("vote", deed.vote(made))
            talk.require_heard()
            deed.act()
        talk.require_heard()
    except Exception as error:  # told to all, then raised
        over = talk.given_up()
        if over is not None and "error" not in over:
            return over
        made_known = error if isinstance(error, CheckpointException) else retold(told(error, 0), talk.world_size)
        if over is not None:  # whoever has given this rank up has raised that
            made_known = retold(over["error"], talk.world_size, named=False)
        elif isinstance(error, RankLost) and talk.was_away:  # the others are gone because this rank was
            made_known = talk.stopped()
        shared = talk.fail("made", made_known)
        if shared is error:
            raise
        raise shared from error
    except BaseException as error:
        talk.fail("made", error)
        raise
    talk.say("made", made)
    return made


def _follow(talk: Conversation, mine: Callable[[], Word], deed: Deed | None) -> Word:
    own = _said(talk, "mine", mine)
    plan: Word = {}
    if own is None and deed is not None:
        plan = talk.hear_leader("plan")
        own = _said(talk, "vote", lambda: deed.vote(plan))
    try:
        return talk.hear_leader("made")
    except CheckpointException as answer:
        if own is not None:
            raise answer from own
        if deed is None or talk.gone is None or not isinstance(answer, RankLost) or not _was_done(talk, deed):
            raise
        talk.end_for_leader(plan)
        log.warning("rank 0 is lost (%s), but what it was to do is done", as_told(answer))
        return plan


def _said(talk: Conversation, topic: str, word: Callable[[], Word]) -> Exception | None:
    """Tell rank 0 this rank's word, or what went wrong here, whose answer is then raised on every rank."""
    try:
        talk.say(topic, word())
    except Exception as error:  # noqa: BLE001  # told to rank 0
        talk.say_error(topic, error)
        return error
    except BaseException as error:
        talk.say_error(topic, error)
        raise
    return None


def _was_done(talk: Conversation, deed: Deed) -> bool:
    """Whether rank 0 has done it; if that cannot be found out, all raise why."""
    try:
        return deed.find_out()
    except CheckpointException as error:
        talk.end_for_leader({"error": told(error, talk.rank), "common": True})
        raise


def excused(talk: Conversation, error: BaseException, *, said: str, heard: str) -> BaseException:
    """Tell the others why this rank does not even begin, where they wait for it; return what all of them raise."""
    if talk.leads:
        return talk.fail(heard, error)
    talk.say_error(said, error)
    if not isinstance(error, Exception):
        return error
    try:
        talk.hear_leader(heard)
    except CheckpointException as told_by_all:
        return told_by_all
    return error


def require_same(words: Sequence[Word], key: str, where: str) -> Any:
    """What all ranks say under ``key``; raise if they do not say the same.

    Example:
        >>> require_same([{"prefix": "a"}, {"prefix": "a"}], "prefix", "runs/a")
        'a'
    """
    said = [word.get(key) for word in words]
    if all(value == said[0] for value in said):
        return said[0]
    ranks: dict[str, list[int]] = {}
    for rank, value in enumerate(said):
        ranks.setdefault(repr(value), []).append(rank)
    first, *others = [(some_of(some), _short(text)) for text, some in ranks.items()]
    odd = ", ".join(f"rank {some} calls with {key}={text}" for some, text in others)
    raise OptionInvalid(
        f"{odd}, rank {first[0]} with {first[1]}. Every rank must make the same call. Nothing was done.", where
    )


def require_same_options(words: Sequence[Word], where: str) -> None:
    """Raise if ranks ask for anything else under ``options``."""
    asked = [word["options"] for word in words]
    for key in dict.fromkeys(key for one in asked for key in one):
        require_same(asked, key, where)


def other_root(mine: str, of_rank_zero: str) -> str:
    """What to say, of a rank that does not see what rank 0 does, about the roots they were given; often the reason."""
    if mine == of_rank_zero:
        return ""
    return f" Rank 0 calls with root={of_rank_zero!r}, this rank with {mine!r}."


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
