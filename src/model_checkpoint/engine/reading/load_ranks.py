"""Load ranks: many ranks load one checkpoint together: all of them, or none.

Rank 0 says which checkpoint. Each rank checks all that can be checked without reading data and says that it is ready;
only when all are does the first byte of any of them change. What goes wrong afterwards on one is told to all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.ranks.conversation import Conversation, Word, program_places
from model_checkpoint.engine.ranks.readings import agreed
from model_checkpoint.engine.root.listing import ListedCheckpoint, read_listed
from model_checkpoint.engine.root.refs import Reference, choose, resolve
from model_checkpoint.errors import (
    CheckpointException,
    CorruptedCheckpoint,
    IncompatibleVersion,
    OptionInvalid,
    PartlyLoaded,
    RankFailed,
    StorageFailure,
    WrongReference,
)
from model_checkpoint.events import Emit, Progress
from model_checkpoint.plan import LoadReport, matcher
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.tree.nodes.per_rank import RankView

log = logging.getLogger("model_checkpoint.load")

PerRank = int | Callable[[int], int] | None
LoadOne = Callable[[Store, ListedCheckpoint, Any, "Meet"], tuple[Any, LoadReport]]
TryOne = Callable[[ListedCheckpoint, "Meet"], tuple[Any, LoadReport]]

_PASSED_OVER = (CorruptedCheckpoint, IncompatibleVersion, StorageFailure, PartlyLoaded, WrongReference)


def rank_view(coordinator: Coordinator | None, per_rank: PerRank, parts: str | Sequence[str] | None) -> RankView:
    """Whose values a rank takes where those that saved differ."""
    rank, world = (0, 1) if coordinator is None else (coordinator.rank, coordinator.world_size)
    own = {place: name for name, place in program_places(coordinator).items()}[rank] if coordinator is not None else 0
    source = per_rank(rank) if callable(per_rank) else per_rank
    if source is not None and (type(source) is not int or source < 0):
        raise OptionInvalid(f"per_rank= gives {source!r} for rank {rank}, expected a rank of the save, from 0 on.")
    return RankView(
        rank=rank, world_size=world, program_rank=own, source=source, wanted=None if parts is None else matcher(parts)
    )


class Meet:
    """Where the ranks of one try to load wait for each other."""

    def __init__(self, talk: Conversation, turn: int) -> None:
        self._talk, self._turn = talk, turn
        self._met = False

    def both(self, emit: Emit) -> Emit:
        """Let bytes that arrive be a sign of life, too."""

        def hear(event: Progress) -> None:
            self._talk.moved(event)
            emit(event)

        return hear

    def ready(self, attempt: str, odd: dict[str, list[str]]) -> Sequence[str]:
        """Wait until every rank is ready to change its state; return which layouts are read as FSDP2 cuts."""
        self._met = True
        word: Word = {"attempt": attempt, "misfits": odd}
        talk, topic = self._talk, f"ready{self._turn}"
        if not talk.leads:
            talk.say(topic, word)
            nested: list[str] = talk.hear_leader(f"go{self._turn}")["nested"]
            return nested
        words = talk.hear_all(topic, word)
        if len({one["attempt"] for one in words}) > 1:
            raise WrongReference("the checkpoint was replaced while the ranks were opening it. Load again.")
        made = agreed(words)
        talk.say(f"go{self._turn}", {"nested": made})
        return made

    def end(self, error: BaseException | None) -> None:
        """Say how it ended here; raise what ended it elsewhere."""
        talk, turn = self._talk, self._turn
        if talk.leads:
            self._lead_end(error)
            return
        if error is None:
            talk.say(f"done{turn}", {})
        else:
            talk.say_error(f"ready{turn}", error)
            talk.say_error(f"done{turn}", error)
        try:
            talk.hear_leader(f"end{turn}")
        except CheckpointException as told:
            raise told from error

    def _lead_end(self, error: BaseException | None) -> None:
        talk, turn = self._talk, self._turn
        try:
            if error is not None:
                raise error
            talk.hear_all(f"done{turn}", {})
        except BaseException as found:
            talk.fail(f"go{turn}", found)
            made = talk.fail(f"end{turn}", found)
            if made is found:
                raise
            raise made from found
        talk.say(f"end{turn}", {})


def load_on_ranks(
    root: Reference,
    choice: dict[str, Any],
    request: Callable[[], Any],
    *,
    coordinator: Coordinator,
    fallback: bool,
    load: LoadOne,
) -> tuple[Any, LoadReport]:
    """Load together with all other ranks; see :func:`model_checkpoint.load`."""
    with Conversation(coordinator, "load") as talk:
        try:
            wish = request()
            store, choices = choose(root, **choice) if talk.leads else (resolve(root, **choice)[0], ())
        except BaseException as error:
            if talk.leads:
                raise talk.fail("open0", error) from error
            talk.say_error("ready0", error)
            raise

        def load_one(found: ListedCheckpoint, meet: Meet) -> tuple[Any, LoadReport]:
            return load(store, found, wish, meet)

        return _Tries(talk, store, choices, fallback=fallback, load=load_one).run()


class _Tries:
    """One checkpoint after the other, until one can be used on every rank."""

    def __init__(
        self, talk: Conversation, store: Store, choices: Sequence[ListedCheckpoint], *, fallback: bool, load: TryOne
    ) -> None:
        self._talk, self._store, self._choices = talk, store, choices
        self._fallback, self._load = fallback, load

    def run(self) -> tuple[Any, LoadReport]:
        passed: list[tuple[str, str]] = []
        turn = 0
        while True:
            found = self._opened(turn)
            try:
                state, told = self._try(found, turn)
            except _PASSED_OVER as error:
                if not self._fallback or not self._has_next(turn):
                    raise
                log.warning("%s: not usable: %s", path_of(self._store, found.name), error)
                passed.append((path_of(self._store, found.name), f"{type(error).__name__}: {error}"))
                turn += 1
                continue
            return state, replace(told, passed_over=(*told.passed_over, *passed))

    def _has_next(self, turn: int) -> bool:
        """Whether there is an older checkpoint; rank 0 knows."""
        if not self._talk.leads:
            return bool(self._talk.hear_leader(f"next{turn}")["more"])
        try:
            more = bool(self._choices[turn + 1 : turn + 2])
        except BaseException as error:
            raise self._talk.fail(f"next{turn}", error) from error
        self._talk.say(f"next{turn}", {"more": more})
        return more

    def _opened(self, turn: int) -> ListedCheckpoint:
        topic = f"open{turn}"
        if self._talk.leads:
            found = self._choices[turn]
            self._talk.say(topic, {"name": found.name})
            return found
        name = str(self._talk.hear_leader(topic)["name"])
        listed = read_listed(self._store, name)
        return listed or ListedCheckpoint(name, None, _not_seen(path_of(self._store, name)))

    def _try(self, found: ListedCheckpoint, turn: int) -> tuple[Any, LoadReport]:
        meet = Meet(self._talk, turn)
        try:
            loaded = self._load(found, meet)
        except Exception as error:  # told to the others, then raised
            meet.end(error)
            raise
        meet.end(None)
        return loaded


def _not_seen(where: str) -> RankFailed:
    return RankFailed(
        f"{where}: rank 0 loads this checkpoint, but it is not there on this rank. Choose a root on a file system that "
        "all machines share.",
        where,
    )
