"""Chunk partners: which ranks of a load read chunks for each other, and what all of them want.

All ranks where the coordinator can exchange; else those of one machine, which show each other what they read in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from model_checkpoint.engine.ranks.conversation import Conversation
from model_checkpoint.engine.ranks.words import Word
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.engine.reading.chunks.common_chunks import Wanted, in_common
from model_checkpoint.engine.reading.chunks.exchanged_chunks import ExchangedChunks
from model_checkpoint.engine.reading.chunks.neighbour_chunks import NeighbourChunks
from model_checkpoint.engine.reading.chunks.shared_slots import OwnSlots, SharedSlots, SlotPlace, own_slots, slots_of
from model_checkpoint.manifest import Manifest
from model_checkpoint.options import MIB
from model_checkpoint.storage.contract import host

_ASKED = 2  # how often a load reads chunks: of whole arrays, and of arrays in pieces
_WORTH = 64 * MIB  # what takes longer to read than to agree on who reads it
_SECONDS, _SHARE = 10.0, 8  # ranks of one machine wait for each other so long, and no more than a share of the patience


class ChunkPartners:
    """Whom one rank reads for, and who reads for it, in one try to load."""

    def __init__(self, talk: Conversation, turn: int) -> None:
        self._talk, self._turn, self._asked = talk, turn, 0
        self._exchanges = self._asks = False
        self._slots: OwnSlots | None = None
        self._neighbours: dict[int, SlotPlace] = {}

    def offer(self, nbytes: int) -> Word:
        """What this rank, which has so many bytes to load from far, can do for others."""
        talk = self._talk
        if talk.exchange is not None:
            return {"exchanges": True}
        if talk.world_size > 1 and nbytes >= _WORTH:
            self._slots = own_slots(talk.world_size)
        if self._slots is None:
            return {}
        return {"machine": f"{host.boot_id()} {host.process_space()}", "slots": self._slots.place}

    def join(self, found: Word) -> None:
        """Take up what rank 0 has found of all offers."""
        self._exchanges, machines = found["exchange"], found["machines"]
        self._asks = bool(self._exchanges or machines)
        for machine in machines:
            ranks = {rank: place for rank, *place in machine}
            if self._talk.rank in ranks:
                self._neighbours = ranks

    def source(self, medium: ChunkReader, manifest: Manifest) -> ChunkReader | ExchangedChunks | NeighbourChunks:
        """Where chunks come from: the medium, or others that have read them there."""
        talk = self._talk
        if not self._asks:
            return medium
        if self._exchanges and talk.exchange is not None:
            ranks = {"rank": talk.rank, "world_size": talk.world_size}
            return ExchangedChunks(medium, manifest, **ranks, exchange=talk.exchange, agree=self._agree)
        seconds = min(_SECONDS, talk.patience / _SHARE)
        slots = self._slots_of_all()
        return NeighbourChunks(medium, manifest, rank=talk.rank, slots=slots, agree=self._agree, seconds=seconds)

    def _slots_of_all(self) -> Mapping[int, SharedSlots]:
        """The slots of all ranks of this machine, or none."""
        mine, world = self._talk.rank, self._talk.world_size
        with suppress(OSError, ValueError):  # then the others hear that this rank wants nothing of them
            theirs = {rank: slots_of(place, world) for rank, place in self._neighbours.items() if rank != mine}
            return theirs if self._slots is None else {**theirs, mine: self._slots}
        return {}

    def _agree(self, wanted: Wanted) -> Wanted:
        """What all partners want; all ranks ask, also those that have none."""
        talk, topic = self._talk, f"want{self._turn}.{self._asked}"
        self._asked += 1
        group = "all" if self._exchanges else str(min(self._neighbours, default=talk.rank))
        word: Word = {"want": wanted, "group": group}
        if not talk.leads:
            talk.say(topic, word)
            found: Wanted = talk.hear_leader(f"all-{topic}", end=f"end{self._turn}")["want"][group]
            return found
        groups: dict[str, list[Wanted]] = {}
        for one in talk.hear_all(topic, word):
            groups.setdefault(one["group"], []).append(one["want"])
        made = {name: in_common(wants) for name, wants in groups.items()}
        talk.say(f"all-{topic}", {"want": made})
        return made[group]

    def topics_left(self) -> list[str]:
        """Where rank 0 will still wait for a word of this rank."""
        return [f"want{self._turn}.{asked}" for asked in range(self._asked, _ASKED if self._asks else 0)]

    def close(self) -> None:
        """Let nobody find the slots of this rank any more."""
        if self._slots is not None:
            self._slots.close()


def find_partners(offers: Sequence[Word]) -> Word:
    """Whether all ranks exchange; else, of each machine with several ranks that show chunks, which and where.

    Example:
        >>> find_partners([{"machine": "a", "slots": [7, 3]}, {}, {"machine": "a", "slots": [8, 3]}])
        {'exchange': False, 'machines': [[[0, 7, 3], [2, 8, 3]]]}
    """
    exchange = len(offers) > 1 and all("exchanges" in one for one in offers)
    machines: dict[str, list[list[int]]] = {}
    for rank, one in enumerate(offers):
        if "slots" in one:
            machines.setdefault(one["machine"], []).append([rank, *one["slots"]])
    return {"exchange": exchange, "machines": [ranks for ranks in machines.values() if len(ranks) > 1]}
