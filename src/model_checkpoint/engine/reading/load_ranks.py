"""Load ranks: many ranks load one checkpoint together: all of them, or none.

Rank 0 says which checkpoint. Each rank checks all that can be checked without reading data and says that it is ready;
only when all are does the first byte of any of them change. What goes wrong afterwards on one is told to all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.common.option_checks import as_step
from model_checkpoint.engine.ranks.conversation import Conversation, Touched, as_told, program_places
from model_checkpoint.engine.ranks.error_records import changed_here
from model_checkpoint.engine.ranks.layout_inference import agreed
from model_checkpoint.engine.ranks.rank_agreement import excused, other_root, require_same, require_same_options
from model_checkpoint.engine.ranks.words import Word
from model_checkpoint.engine.reading.chunks.chunk_partners import ChunkPartners, find_partners
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.engine.reading.deliver import SharedMedium
from model_checkpoint.engine.root.listing import ListedCheckpoint, read_listed
from model_checkpoint.engine.root.refs import Reference, choose, resolve
from model_checkpoint.errors import (
    CheckpointException,
    CorruptedCheckpoint,
    IncompatibleVersion,
    OptionInvalid,
    PartlyLoaded,
    RankFailed,
    RankLost,
    StorageFailure,
    WrongReference,
)
from model_checkpoint.events import Emit
from model_checkpoint.manifest import Manifest
from model_checkpoint.plan import LoadReport, matcher
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.tree.nodes.per_rank import RankView

log = logging.getLogger("model_checkpoint.load")

T = TypeVar("T")
PerRank = int | Callable[[int], int] | None
LoadOne = Callable[[Store, ListedCheckpoint, Any, "LoadBarrier"], tuple[Any, LoadReport]]
TryOne = Callable[[str, "LoadBarrier"], tuple[Any, LoadReport]]

_PASSED_OVER = (CorruptedCheckpoint, IncompatibleVersion, StorageFailure, WrongReference)


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


class LoadBarrier:
    """Where the ranks of one try to load wait for each other."""

    def __init__(self, talk: Conversation, turn: int, root: str) -> None:
        self._talk, self.turn, self._root = talk, turn, root
        self._partners = ChunkPartners(talk, turn)
        self.touched: Touched = lambda: ((), ())  # what this rank has changed so far

    def changing(self, touched: Touched) -> AbstractContextManager[None]:
        """Around each change of live objects; see :attr:`Conversation.changing`."""
        self.touched = touched
        return self._talk.changing(touched)

    def both(self, emit: Emit) -> Emit:
        """Let bytes that arrive be a sign of life, too."""
        return self._talk.heard(emit)

    def ready(self, attempt: str, odd: dict[str, list[str]], nbytes: int) -> Sequence[str]:
        """Wait until every rank is ready to change its state; return which layouts are read as FSDP2 cuts.

        ``nbytes`` are those to be read from far; what lies in a cache of the machine each rank reads for itself.
        """
        talk, topic = self._talk, f"ready{self.turn}"
        word: Word = {
            "root": self._root,
            "attempt": attempt,
            "misfits": odd,
            "partner": self._partners.offer(nbytes),
        }
        if talk.leads:
            words = talk.hear_all(topic, word)
            if len({one["attempt"] for one in words}) > 1:
                require_same(words, "root", self._root)
                raise WrongReference("the checkpoint was replaced while the ranks were opening it. Load again.")
            go: Word = {"nested": agreed(words), "partners": find_partners([one["partner"] for one in words])}
            talk.require_heard()
            talk.say(f"go{self.turn}", go)
        else:
            talk.say(topic, word)
            go = talk.hear_leader(f"go{self.turn}")
        self._partners.join(go["partners"])
        nested: list[str] = go["nested"]
        return nested

    def shared(self, medium: ChunkReader, manifest: Manifest) -> SharedMedium:
        """Where chunks come from: the medium, or other ranks that have read them there."""
        return self._partners.source(medium, manifest)

    def close(self) -> None:
        """Let go of what other ranks could see."""
        self._partners.close()

    def attended(self, work: Callable[[], T]) -> T:
        """Do ``work``, and be heard meanwhile; see :meth:`Conversation.attended`."""
        return self._talk.attended(work)

    def end(self, error: BaseException | None) -> None:
        """Say how it ended here; raise what ended it elsewhere."""
        talk, turn = self._talk, self.turn
        if talk.leads:
            self._lead_end(error)
            return
        if error is None:
            talk.say(f"done{turn}", {})
        else:
            self.leave(error)
        if isinstance(error, RankLost) and 0 in error.ranks:
            return  # nobody is there to say how it ended elsewhere
        try:
            talk.hear_leader(f"end{turn}")
        except CheckpointException as told:
            raise told from error

    def leave(self, error: BaseException) -> None:
        """Tell the others that this rank goes no further, wherever they wait for it."""
        talk, turn = self._talk, self.turn
        if talk.leads:
            talk.fail(f"go{turn}", error, last=False)
            talk.fail(f"end{turn}", error, last=False)
            return
        talk.say_error(f"ready{turn}", error)
        for topic in self._partners.topics_left():
            talk.say_error(topic, error)
        talk.say_error(f"done{turn}", error)

    def _lead_end(self, error: BaseException | None) -> None:
        talk, turn = self._talk, self.turn
        try:
            if error is not None:
                raise error
            talk.hear_all(f"done{turn}", {})
        except BaseException as found:
            talk.fail(f"go{turn}", found, last=False)
            made = talk.fail(f"end{turn}", found, last=False)
            if made is found:
                raise
            raise made from found
        talk.say(f"end{turn}", {})


def load_on_ranks(
    root: Reference,
    choice: dict[str, Any],
    make_request: Callable[[], Any],
    *,
    coordinator: Coordinator,
    fallback: bool,
    load: LoadOne,
) -> tuple[Any, LoadReport]:
    """Load together with all other ranks; see :func:`model_checkpoint.load`."""
    with Conversation(coordinator, "load") as talk:
        try:
            request = make_request()
            store, wanted = resolve(root, **choice)
            hello: Word = {"options": _told_options({**wanted, "fallback": fallback, **request.common})}
            if talk.leads:
                require_same_options(talk.hear_all("hello", hello), store.url)
                choices = choose(store, **wanted)[1]
            else:
                talk.say("hello", hello)
                choices = ()
        except BaseException as error:
            raise excused(talk, error, said="hello", heard="open0") from error

        def load_one(name: str, barrier: LoadBarrier) -> tuple[Any, LoadReport]:
            found = choices[barrier.turn] if talk.leads else _seen(store, name, tries.root_of_leader)
            return load(store, found, request, barrier)

        tries = _Tries(talk, choices, fallback=fallback, store=store, load=load_one)
        return tries.run()


def _told_options(options: Mapping[str, Any]) -> Word:
    """Options as others can be told; what no rank can use is as it prints, and refused where it is used."""
    step = options["step"]
    said = {**options, "step": step if step is None else as_step(step)}
    plain = (str, int, list, type(None))
    return {key: value if isinstance(value, plain) else repr(value) for key, value in said.items()}


class _Tries:
    """One checkpoint after the other, until one can be used on every rank."""

    def __init__(
        self,
        talk: Conversation,
        choices: Sequence[ListedCheckpoint],
        *,
        fallback: bool,
        store: Store,
        load: TryOne,
    ) -> None:
        self._talk, self._choices = talk, choices
        self._fallback, self._store, self._load = fallback, store, load
        self.root_of_leader = store.url
        self._replaced: set[str] = set()  # of the live objects of this rank, by all tries that failed
        self._partial: set[str] = set()

    def run(self) -> tuple[Any, LoadReport]:
        """Load; an error tells whether live objects of this rank were changed, whatever it is on others."""
        try:
            return self._run()
        except CheckpointException as error:
            if not self._replaced and not self._partial:
                raise
            raise changed_here(as_told(error), sorted(self._replaced), sorted(self._partial)) from error

    def _run(self) -> tuple[Any, LoadReport]:
        passed: list[tuple[str, str]] = []
        turn = 0
        while True:
            name = self._opened(turn)
            try:
                state, told = self._try(name, turn)
            except _PASSED_OVER as error:
                if not self._fallback or not self._has_next(turn):
                    raise
                log.warning("%s: not usable: %s", path_of(self._store, name), error)
                passed.append((path_of(self._store, name), f"{type(error).__name__}: {error}"))
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

    def _opened(self, turn: int) -> str:
        """The name of the checkpoint to try; rank 0 says it."""
        topic = f"open{turn}"
        if not self._talk.leads:
            opened = self._talk.hear_leader(topic)
            self.root_of_leader = str(opened["root"])
            return str(opened["name"])
        try:
            name = self._choices[turn].name
            self._talk.say(topic, {"name": name, "root": self._store.url})
        except BaseException as error:
            raise self._talk.fail(topic, error) from error
        return name

    def _try(self, name: str, turn: int) -> tuple[Any, LoadReport]:
        barrier = LoadBarrier(self._talk, turn, self._store.url)
        try:
            try:
                loaded = self._load(name, barrier)
            except PartlyLoaded as error:  # each rank names what was changed there: the others hear only why
                self._note(error.replaced, error.partial)
                why = error.inner_exception if isinstance(error.inner_exception, Exception) else error
                barrier.end(why)
                raise why from error
            except Exception as error:  # told to the others, then raised
                barrier.end(error)
                raise
            self._end(barrier)
        except Exception:
            raise
        except BaseException as error:  # an interrupt: the others hear of it, and are not waited for
            barrier.leave(error)
            raise
        finally:
            barrier.close()
        return loaded

    def _end(self, barrier: LoadBarrier) -> None:
        """Wait until all have loaded; if another one has not, this one has changed for nothing."""
        try:
            barrier.end(None)
        except Exception:
            self._note(*barrier.touched())
            raise

    def _note(self, replaced: Sequence[str], partial: Sequence[str]) -> None:
        self._replaced |= {*replaced}
        self._partial |= {*partial}


def _seen(store: Store, name: str, root_of_leader: str) -> ListedCheckpoint:
    """What this rank sees of the checkpoint that rank 0 has named."""
    found = read_listed(store, name)
    if found is not None:
        return found
    where = path_of(store, name)
    missing = RankFailed(
        f"{where}: rank 0 loads this checkpoint, but it is not there on this rank. Choose a root on a file system that "
        f"all machines share.{other_root(store.url, root_of_leader)}",
        where,
    )
    return ListedCheckpoint(name, None, missing)
