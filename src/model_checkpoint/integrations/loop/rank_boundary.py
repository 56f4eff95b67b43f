"""Rank boundary: all ranks of a run leave at the same boundary, whichever of them was told to end.

A signal reaches ranks at different steps, or only one of them. So they meet about twice a second, at a boundary that
rank 0 named when they met before: each says what it was told, and rank 0 decides for all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.ranks.call_numbers import call_number
from model_checkpoint.engine.root.refs import choose
from model_checkpoint.errors import CheckpointNotFound, RankLost, StructureMismatch
from model_checkpoint.storage.locate import Root

_SECONDS = 0.5  # between two meetings
_SLICE = 1.0  # seconds of one look for words


class RankBoundary:
    """Where the ranks of one run meet.

    Example:
        >>> from model_checkpoint.distributed import LocalCoordinator
        >>> here = RankBoundary(LocalCoordinator())
        >>> here.is_due(0), here.verdict(0, told=15), here.is_due(0)
        (True, 15, False)
    """

    def __init__(self, ranks: Coordinator) -> None:
        self._ranks = ranks
        self._prefix = f"boundary-{call_number(ranks)}"
        self._turn = 0
        self._next: int | None = None  # the step at which they meet next
        self._stride, self._met = 1, time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether all ranks meet at this boundary."""
        return self._next is None or step >= self._next

    def verdict(self, step: int, *, told: int) -> int:
        """Say which signal this rank was told to end by, or 0; hear by which all of them end, or 0.

        Raises:
            RankLost: One of them gave no sign within the patience of the coordinator.
            StructureMismatch: The ranks are not at the same step.
        """
        self._turn += 1
        if self._ranks.rank == 0:
            word = self._decide(step, told)
            self._put("verdict", word)
        else:
            self._put("notice", {"step": step, "told": told})
            word = self._heard("verdict", [0])[0]
        odd = [rank for rank, at in enumerate(word["steps"]) if at != word["steps"][0]]
        if odd:
            raise StructureMismatch(
                f"run: rank {odd[0]} is at step {word['steps'][odd[0]]}, rank 0 at step {word['steps'][0]}. All ranks "
                "must go through as many batches, and step their optimizers at the same of them."
            )
        self._next = int(word["next"])
        return int(word["told"])

    def _decide(self, step: int, told: int) -> dict[str, Any]:
        words = [{"step": step, "told": told}, *self._heard("notice", range(1, self._ranks.world_size))]
        number = next((word["told"] for word in words if word["told"]), 0)
        return {"steps": [word["step"] for word in words], "told": number, "next": step + self._stretched()}

    def _stretched(self) -> int:
        """Bodies until they meet again, by the time that those until now took."""
        now = time.monotonic()
        each, self._met = (now - self._met) / self._stride, now
        self._stride = max(1, min(2 * self._stride, int(_SECONDS / each) if each > 0 else self._stride))
        return self._stride

    def _key(self, topic: str, rank: int) -> str:
        return f"{self._prefix}/{topic}/{rank}"

    def _put(self, topic: str, word: dict[str, Any]) -> None:
        self._ranks.put(self._key(topic, self._ranks.rank), msgspec.json.encode({**word, "turn": self._turn}))

    def _heard(self, topic: str, ranks: Sequence[int]) -> list[dict[str, Any]]:
        """What each of ``ranks`` says at this meeting."""
        since, words = time.monotonic(), dict[int, dict[str, Any]]()
        nap = 0.0005
        while missing := [rank for rank in ranks if rank not in words]:
            keys = {self._key(topic, rank): rank for rank in missing}
            found = self._ranks.collect(list(keys), time.monotonic() + _SLICE)
            read = {keys[key]: msgspec.json.decode(value, type=dict[str, Any]) for key, value in found.items()}
            words |= {rank: word for rank, word in read.items() if word["turn"] == self._turn}
            if len(words) == len(ranks):
                break
            if time.monotonic() - since > self._ranks.patience:
                raise self._lost([rank for rank in missing if rank not in words])
            time.sleep(nap)  # a word of the meeting before is still there
            nap = min(2 * nap, 0.05)
        return [words[rank] for rank in ranks]

    def _lost(self, silent: Sequence[int]) -> RankLost:
        who = ", ".join(map(str, silent[:16])) + (", ..." if len(silent) > 16 else "")
        return RankLost(
            f"rank {who} of {self._ranks.world_size} did not come to a boundary for {self._ranks.patience:g} s: it was "
            "killed, it hangs, or it works alone for longer than that. Restart the job: it goes on from the newest "
            "checkpoint; a coordinator takes patience=.",
            ranks=silent,
        )


def require_as_many(root: Root, world_size: int) -> None:
    """Refuse to go on from what another number of ranks saved: nobody knows where in its data each rank would be."""
    try:
        store, choices = choose(root)
    except CheckpointNotFound:
        return
    newest = choices[0]
    if newest.summary is not None and newest.summary.world_size != world_size:
        raise StructureMismatch(
            f"{path_of(store, newest.name)}: saved by {newest.summary.world_size} ranks, now there are {world_size}, "
            "and each has a place in the data of its own. Start as many ranks as saved; or give the run another root, "
            "and load what is trained from this one with mc.load(..., parts=[...])."
        )
