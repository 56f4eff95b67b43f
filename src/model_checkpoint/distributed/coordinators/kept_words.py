"""Kept words: which words of which calls are still there, so that no transport grows with every save.

Whose words go is decided by topic: a save in the background may take longer than hundreds of other calls, which are
made at every step of the training meanwhile, and must not lose what it has said.
"""

from __future__ import annotations

from collections import OrderedDict

from model_checkpoint import forks

_KEPT_CALLS = 8  # of each topic: several saves may be under way at once, and a rank may still be about to read


class KeptWords:
    """The keys of the last calls of each topic; calls that still give signs of life are among the last.

    Example:
        >>> kept = KeptWords()
        >>> for number in range(1, 9):
        ...     _ = kept.note(f"save-{number}/vote/0")
        >>> kept.note("notice-9/mine/0"), kept.note("save-10/vote/0")
        ({}, {'save-1': {'save-1/vote/0'}})
    """

    def __init__(self) -> None:
        self._topics: dict[str, OrderedDict[str, set[str]]] = {}
        self._guard = forks.lock()

    def note(self, key: str) -> dict[str, set[str]]:
        """Take note of a word; return the calls to be forgotten, each with its keys."""
        call = key.rsplit("/", 2)[0]
        topic = call.rpartition("-")[0]
        with self._guard:
            calls = self._topics.setdefault(topic, OrderedDict())
            calls.setdefault(call, set()).add(key)
            calls.move_to_end(call)
            return dict(calls.popitem(last=False) for _ in range(len(calls) - _KEPT_CALLS))
