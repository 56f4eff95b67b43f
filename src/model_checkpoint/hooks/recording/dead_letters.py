"""Dead letters: calls that failed, with what is needed to make them again.

A letter keeps the text and numbers of its context, never the model: it must not hold memory that training needs.
"""

from __future__ import annotations

import itertools
import time
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from model_checkpoint import forks
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookEvent
from model_checkpoint.hooks.values.hook_result import FailureKind, HookFailure
from model_checkpoint.hooks.values.plain_data import described, plain_data


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One call that failed. ``data`` is what of its context could be kept, ``left_out`` names the rest."""

    id: int
    hook: str
    event: HookEvent
    kind: FailureKind
    error: str
    details: str
    at: float
    attempts: int = 1
    checkpoint_id: str | None = None
    experiment_id: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def context(self) -> HookContext:
        """What the hook is handed when the call is made again; ``metadata["replay_of"]`` tells it so."""
        return HookContext(
            event=self.event,
            data=dict(self.data),
            checkpoint_id=self.checkpoint_id,
            experiment_id=self.experiment_id,
            metadata={"replay_of": self.id, "left_out": self.left_out},
        )


class DeadLetters:
    """The last ``most`` failures, oldest first; older ones make room and are counted.

    Example:
        >>> letters = DeadLetters(most=100)
        >>> letters.all(), letters.dropped
        ((), 0)
    """

    def __init__(self, most: int) -> None:
        self._lock = forks.lock()
        self._most, self._ids = most, itertools.count(1)
        self._letters: dict[int, DeadLetter] = {}
        self.dropped = 0

    def add(self, failure: HookFailure, context: HookContext) -> DeadLetter:
        """Keep one failure."""
        kept, left_out = plain_data(context.data)
        letter = DeadLetter(
            id=next(self._ids),
            hook=failure.hook,
            event=failure.event,
            kind=failure.kind,
            error=described(failure.error),
            details="".join(traceback.format_exception(failure.error)),
            at=time.time(),
            checkpoint_id=context.checkpoint_id,
            experiment_id=context.experiment_id,
            data=kept,
            left_out=left_out,
        )
        with self._lock:
            self._letters[letter.id] = letter
            while len(self._letters) > self._most:
                del self._letters[next(iter(self._letters))]
                self.dropped += 1
        return letter

    def all(self) -> tuple[DeadLetter, ...]:
        """Every letter there is."""
        with self._lock:
            return tuple(self._letters.values())

    def chosen(self, ids: Collection[int] | None) -> tuple[DeadLetter, ...]:
        """The letters with these ids, or all."""
        return tuple(letter for letter in self.all() if ids is None or letter.id in ids)

    def remove(self, letter: DeadLetter) -> None:
        """Forget a letter whose call was made."""
        with self._lock:
            self._letters.pop(letter.id, None)

    def failed_again(self, letter: DeadLetter, failure: HookFailure) -> None:
        """Count another attempt, if the letter is still kept."""
        with self._lock:
            if letter.id in self._letters:
                again = described(failure.error)
                self._letters[letter.id] = replace(letter, attempts=letter.attempts + 1, kind=failure.kind, error=again)
