"""Conversation: what ranks say to each other during one call, heard in time or named as missing.

Rank 0 leads: the others speak to it, it speaks to all. A word is waited for as long as its speaker gives any sign of
life: while they work, ranks publish how many bytes they have moved, and a number that does not change is silence.

How a call has ended is said under a key of its own, by rank 0 or by whoever has given it up, and looked for by all:
also by one that was given up, and would tell another end than the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, TypeVar

from model_checkpoint.coordination import Coordinator, Exchange
from model_checkpoint.engine.ranks.call_numbers import call_number
from model_checkpoint.engine.ranks.error_records import retold, told
from model_checkpoint.engine.ranks.words import Word, decode_word, encode_word
from model_checkpoint.errors import (
    CheckpointException,
    CheckpointNotFound,
    OptionInvalid,
    RankFailed,
    RankLost,
    StepExists,
    StructureMismatch,
    WrongReference,
)
from model_checkpoint.events import Emit, Progress

log = logging.getLogger("model_checkpoint.ranks")

T = TypeVar("T")
Touched = Callable[[], tuple[Sequence[str], Sequence[str]]]  # live leaves replaced so far, in whole and in part
Changing = Callable[[Touched], AbstractContextManager[None]]

_OVER = "over"  # under which it is said how the call has ended
_LAST_WORD = 0.25  # seconds in which a store that answers has taken the last word
_COME_BY = 0.005  # seconds between two looks at what other threads want to say
_LOOK = 0.02  # seconds between two looks for the end of the call
_REPEATS = 4  # how often within its patience a rank that waits says its last word again: a transport may lose one
_OF_THE_CALL = (StepExists, OptionInvalid, StructureMismatch, CheckpointNotFound, WrongReference)


def program_places(coordinator: Coordinator) -> dict[int, int]:
    """Which of the coordinator's ranks each rank of the program is, by the program's own count."""
    ranks = getattr(coordinator, "program_ranks", None)
    return {int(rank): place for place, rank in enumerate(range(coordinator.world_size) if ranks is None else ranks)}


def as_told(error: CheckpointException) -> CheckpointException:
    """What all ranks raise of rank 0 that was given up; one that was late for a call with a limit has its own error."""
    made: CheckpointException = getattr(error, "told_as", error)
    return made


def unguarded(touched: Touched) -> AbstractContextManager[None]:
    """Let live objects be changed, whoever waits for it."""
    return nullcontext()


class Conversation:
    """One call that all ranks make together; a context manager that publishes signs of life meanwhile."""

    def __init__(self, coordinator: Coordinator, topic: str) -> None:
        self._coordinator = coordinator
        self.rank, self.world_size = coordinator.rank, coordinator.world_size
        self.patience = float(coordinator.patience)
        self.places = program_places(coordinator)
        self._prefix = f"{topic}-{call_number(coordinator)}"
        self._slice = min(1.0, self.patience / 8)
        self._moved = self._ticks = 0
        self._waits = False
        self.gone: RankLost | None = None  # if rank 0 was given up here: then there is nobody to talk to
        self._unheard: float | None = None  # since when rank 0 has not taken what it is told
        self._said: tuple[str, bytes] | None = None  # the last word of this rank
        self._sign = time.monotonic()  # when it was said, or the others were heard
        self._missed = False  # whether it has ever given no sign for longer than others wait
        self._is_over = False
        self._over = threading.Event()
        self._herald: threading.Thread | None = None
        attach: Callable[[Callable[[], Word | None]], None] | None = getattr(coordinator, "conversing", None)
        if attach is not None:
            attach(self.outcome)

    @property
    def exchange(self) -> Exchange | None:
        """What hands large buffers around, if there is such a thing."""
        return getattr(self._coordinator, "exchange", None)

    @property
    def changing(self) -> Changing:
        """Around each change of live objects: raises if this call was left behind."""
        return getattr(self._coordinator, "changing", None) or unguarded

    def deciding(self, settle: Callable[[], bool]) -> None:
        """From here on only ``settle`` can tell what becomes of the save; raises if this call was left behind."""
        decide: Callable[[Callable[[], bool]], None] | None = getattr(self._coordinator, "deciding", None)
        if decide is not None:
            decide(settle)

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def __enter__(self) -> Conversation:
        if self.world_size > 1:
            self._herald = threading.Thread(target=self._publish, name="mckpt-herald", daemon=True)
            self._herald.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.gone is not None and not self._is_over and isinstance(error, RankLost):
            self.end_for_leader({"error": told(as_told(error), 0), "common": True})
        self._over.set()

    def moved(self, event: Progress) -> None:
        """Take note of bytes moved, a sign of life; another count begins with another file."""
        self._moved = event.done

    def heard(self, emit: Emit) -> Emit:
        """A listener that tells ``emit``, too."""

        def both(event: Progress) -> None:
            self.moved(event)
            emit(event)

        return both

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While this rank waits for something of its own, its being alive is sign enough."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def attended(self, work: Callable[[], T]) -> T:
        """Do ``work``; where only this thread may talk, in another one, while this one carries the words of both."""
        attend: Callable[[], None] | None = getattr(self._coordinator, "attend", None)
        if attend is None:
            return work()
        made: Future[T] = Future()

        def run() -> None:
            try:
                made.set_result(work())
            except BaseException as error:  # noqa: BLE001  # raised by the thread that waits
                made.set_exception(error)

        threading.Thread(target=run, name="mckpt-attended", daemon=True).start()
        interrupt = None
        while not made.done():
            try:
                attend()
                wait([made], _COME_BY)
            except BaseException as error:  # noqa: BLE001  # the others must hear the end of it all the same
                interrupt = interrupt or error
        attend()
        if interrupt is not None:
            raise interrupt
        return made.result()

    def _publish(self) -> None:
        last = ""
        while not self._over.wait(self._slice):
            self._ticks += self._waits
            sign = f"{self._moved}.{self._ticks}"
            if sign == last:
                continue
            try:
                self._coordinator.put(self._key("beat", self.rank), sign.encode())
            except Exception as error:  # noqa: BLE001  # of a coordinator of anybody's; the next sign may come through
                log.warning("rank %d could not give a sign of life (%s: %s)", self.rank, type(error).__name__, error)
            else:
                last = sign

    def _key(self, word: str, rank: int) -> str:
        return f"{self._prefix}/{word}/{rank}"

    def say(self, topic: str, word: Mapping[str, Any]) -> None:
        """Tell rank 0, or as rank 0 tell all."""
        if self.gone is not None:
            return
        self._said = self._key(topic, self.rank), encode_word(word)
        began = self._put()
        slow = not self.leads and time.monotonic() - began > self._slice
        self._unheard = began if slow else None  # a word that nobody takes is silence, too

    def _put(self) -> float:
        """Say the last word, perhaps once more; return when that began."""
        self._note_sign()
        began = self._sign
        if self._said is not None:
            self._coordinator.put(*self._said)
        return began

    def _note_sign(self) -> None:
        self._missed, self._sign = self.was_away, time.monotonic()

    def outcome(self, within: float = 0.0) -> Word | None:
        """How the call has ended, if somebody says so by then: with an error, or with what a save has made."""
        end = time.monotonic() + within
        while (over := self._ended(_OVER).get(0)) is None and time.monotonic() < end:
            time.sleep(_LOOK)
        return over

    def given_up(self, *, soon: bool = False) -> Word | None:
        """Rank 0: how the others have ended the call, if they have, or do so ``soon``."""
        wait = 1.0 if self.was_away else _LAST_WORD if soon else 0.0
        return self.outcome(wait) if self.world_size > 1 else None

    @property
    def was_away(self) -> bool:
        """Whether this rank has given no sign for longer than others wait."""
        return self._missed or time.monotonic() - self._sign > self.patience

    def require_heard(self) -> None:
        """Rank 0, before anybody can see something of the call: raise what ended it if others gave this rank up."""
        over = self.given_up() if self.was_away else None
        if over is not None and "error" in over:
            raise retold(over["error"], self.world_size, named=False)

    def end_for_leader(self, word: Word) -> None:
        """Say for rank 0, which was given up, how the call has ended: to the others, and to itself if it goes on.

        Where its machine is gone nobody takes the word, so that it is not waited for.
        """
        self._is_over = True
        key, data = self._key(_OVER, 0), encode_word(word)
        saying = threading.Thread(target=self._coordinator.put, args=(key, data), name="mckpt-last-word", daemon=True)
        saying.start()
        saying.join(min(self._slice, _LAST_WORD))

    def say_error(self, topic: str, error: BaseException) -> None:
        """Tell what went wrong here."""
        self.say(topic, {"error": told(error, self.rank)})

    @contextmanager
    def interrupts_told(self, *topics: str) -> Iterator[None]:
        """Tell rank 0 of an interrupt, wherever it waits for this rank; other errors are told by who meets them."""
        try:
            yield
        except Exception:
            raise
        except BaseException as error:
            for topic in topics:
                self.say_error(topic, error)
            raise

    def hear_all(self, topic: str, mine: Mapping[str, Any]) -> list[Word]:
        """Rank 0: what every rank says, in their order; raise the error one of them tells, or who is missing."""
        others = list(range(1, self.world_size))
        self._note_sign()
        heard = self._hear(topic, others)
        self._note_sign()
        if 0 in heard:  # the others have given this rank up
            raise retold(heard[0]["error"], self.world_size, named=False)
        words = [heard.get(rank, {}) if rank else dict(mine) for rank in range(self.world_size)]
        errors = [word["error"] for word in words if "error" in word]
        if errors:
            raise self._raised(errors)
        return words

    def _raised(self, errors: Sequence[Word]) -> CheckpointException:
        first = retold(errors[0], self.world_size)
        ranks = sorted({int(rank) for error in errors for rank in error["ranks"]})
        first.ranks = tuple(ranks)  # type: ignore[attr-defined]
        return first

    def hear_leader(self, topic: str, *, end: str = "") -> Word:
        """Another rank: what rank 0 says; raise the error it tells, also one by which it ended the call before."""
        word = self._hear(topic, [0], end)[0]
        if "error" in word:
            raise retold(word["error"], self.world_size, named=not word.get("common", False))
        return word

    def _hear(self, topic: str, ranks: Sequence[int], end: str = "") -> dict[int, Word]:
        """Wait for a word of each of ``ranks``, or for the first that tells an error."""
        if self.gone is not None:
            raise self.gone
        heard: dict[int, Word] = {}
        watch, self._unheard = _RankWatch(ranks, time.monotonic() if self._unheard is None else self._unheard), None
        while missing := [rank for rank in ranks if rank not in heard]:
            keys = {self._key(topic, rank): rank for rank in missing}
            began = time.monotonic()
            found = self._collect(list(keys), began + self._slice)
            heard |= {keys[key]: decode_word(value) for key, value in found.items()}
            self._ticks += 1
            away = time.monotonic() - began > self.patience + self._slice
            if away and not found and not self._spoken(topic, missing):
                if over := self._over_for(ranks, _LAST_WORD):
                    return over
                raise self.stopped()
            if any("error" in word for word in heard.values()):
                break
            missing = [rank for rank in missing if rank not in heard]
            if missing:
                beats, asked = {self._key("beat", rank): rank for rank in missing}, time.monotonic()
                signs = self._coordinator.collect(list(beats), asked)
                watch.note({beats[key]: value for key, value in signs.items()})
                answers = time.monotonic() - asked < _LAST_WORD  # else each look more takes as long, and tells nothing
                heard |= self._ended(end) if end and answers else {}
                if answers and (over := self._over_for(ranks)):
                    return over
                if answers and time.monotonic() - self._sign > self.patience / _REPEATS:
                    self._put()
                silent = [rank for rank in missing if watch.silence(rank) > self.patience]
                if silent and not self._spoken(topic, silent):  # this rank may have been away, and not they
                    error = self._lost(silent)
                    self.gone = error if 0 in silent else None
                    raise error
        return heard

    def _collect(self, keys: Sequence[str], until: float) -> dict[str, bytes]:
        try:
            return self._coordinator.collect(keys, until)
        except RankLost as error:  # of a call that may not wait for rank 0 any longer
            self.gone = error
            raise

    def _over_for(self, ranks: Sequence[int], within: float = 0.0) -> dict[int, Word]:
        """The word that spares this rank to wait for those of ``ranks``, if there is one."""
        over = self.outcome(within)
        return {0: over} if over is not None and (ranks == [0] or "error" in over) else {}

    def _spoken(self, topic: str, ranks: Sequence[int]) -> bool:
        """Whether there is a word of one of them by now."""
        return bool(self._coordinator.collect([self._key(topic, rank) for rank in ranks], time.monotonic()))

    def _ended(self, topic: str) -> dict[int, Word]:
        """The word by which rank 0 has ended the call, if it has."""
        key = self._key(topic, 0)
        found = self._coordinator.collect([key], time.monotonic())
        return {0: decode_word(found[key])} if found else {}

    def stopped(self) -> RankLost:
        """The error for a rank that was away for so long that the others have given it up."""
        return RankLost(
            f"rank {self.rank} of {self.world_size}, this one, was stopped or without time for longer than "
            f"{self.patience:g} s, so the others have given it up. Restart the job and load the newest checkpoint.",
            ranks=[self.rank],
        )

    def _lost(self, silent: Sequence[int]) -> RankLost:
        who = ", ".join(map(str, silent[:16])) + (", ..." if len(silent) > 16 else "")
        return RankLost(
            f"rank {who} of {self.world_size} gave no sign for {self.patience:g} s: it was killed, it hangs, or it did "
            "not make this call. Restart the job and load the newest checkpoint; a coordinator takes patience=.",
            ranks=silent,
        )

    def fail(self, topic: str, error: BaseException, *, last: bool = True) -> BaseException:
        """Rank 0: tell all what went wrong; return it as they will raise it, naming the rank it comes from.

        What concerns the call and not a rank, such as a name that is taken, is told as it is. If it is not the
        ``last`` word the ranks try something else, unless one of them is lost.
        """
        common = isinstance(error, (RankFailed, *_OF_THE_CALL)) or hasattr(error, "ranks")
        plain = told(error, self.rank)
        for each in (topic, _OVER) if last or isinstance(error, TimeoutError) else (topic,):
            self.say(each, {"error": plain, "common": common})
        if common or not isinstance(error, Exception):
            return error
        named = retold(plain, self.world_size)
        named.__cause__ = error
        return named


class _RankWatch:
    """When each rank last gave a sign that was new."""

    def __init__(self, ranks: Sequence[int], since: float) -> None:
        self._since = dict.fromkeys(ranks, since)
        self._signs: dict[int, bytes] = {}

    def note(self, signs: Mapping[int, bytes]) -> None:
        for rank, sign in signs.items():
            if self._signs.get(rank) != sign:
                self._signs[rank], self._since[rank] = sign, time.monotonic()

    def silence(self, rank: int) -> float:
        return time.monotonic() - self._since[rank]
