"""Coordination: the contract of what lets the ranks of one program talk while they save or load together.

It is little: to put a few bytes under a key, and to collect what others have put. Both must come back in time whatever
became of the other ranks; a coordinator whose transport may hang runs each call where it can be left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

PATIENCE = 300.0

Exchange = Callable[[Sequence[memoryview]], None]


@runtime_checkable
class Coordinator(Protocol):
    """The ranks of one program.

    Every rank makes the same calls of :func:`save` and :func:`load` in the same order, each with a coordinator of its
    own. What rank 0 puts every rank may collect; what another rank puts, rank 0. A value put again replaces the one
    before. A coordinator may have besides:

    - ``scope``: calls through coordinators of one scope are counted together.
    - ``program_ranks``: what the program calls its ranks, if it counts them otherwise (those of a group among all).
    - ``attend()``: where only one thread may talk. Whoever waits in that thread calls it again and again, so that the
      words of other threads get through; None where any thread may.
    - ``exchange(buffers)``: hands large buffers around, one of each rank, of sizes that all ranks know. Every rank
      calls it with its own filled; when it returns, all are. What all ranks load is then read from the store by one.
    - ``changing(touched)`` and ``deciding(settle)``, where a call may be left behind by whoever waits for it: the first
      is a context manager around each change of live objects, and ``touched()`` names those changed so far; the second
      is called before a rank votes or publishes, and ``settle()`` then ends the save for good and tells whether it is
      committed. Both raise once the call was left. ``conversing(outcome)`` is called when the ranks begin to talk, and
      ``outcome()`` then is how the call has ended, once another rank has said it.
    """

    @property
    def rank(self) -> int:
        """Which of the ranks this process is."""
        ...

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        ...

    @property
    def patience(self) -> float:
        """Seconds without any sign of a rank after which the others give it up."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Let every rank find ``value`` under ``key``; returns within seconds, and promises nothing."""
        ...

    def collect(self, keys: Sequence[str], until: float) -> dict[str, bytes]:
        """What is known of ``keys`` when all of them are there, or when ``time.monotonic()`` has reached ``until``.

        Comes back within seconds after that, with nothing if nobody answers.
        """
        ...
