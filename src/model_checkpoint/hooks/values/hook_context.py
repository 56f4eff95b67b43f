"""Hook context: what a hook is handed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model_checkpoint.hooks.values.hook_event import HookEvent


@dataclass(slots=True)
class HookContext:
    """What happened, to which checkpoint of which experiment, and what belongs to it.

    Hooks read and change ``data``; ``user_data`` is theirs to leave notes for one another. Copies are of the
    dictionaries, never of what is in them: a model of a hundred gigabytes is handed on as it is.

    Example:
        >>> context = HookContext(data={"step": 100}, checkpoint_id="c-1")
        >>> context.set("note", "warm-up done")
        >>> context.get("step"), context.get("loss", 0.0), context.data["note"]
        (100, 0.0, 'warm-up done')
    """

    event: HookEvent | None = None
    data: dict[str, Any] = field(default_factory=dict)
    checkpoint_id: str | None = None
    experiment_id: str | None = None
    user_data: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        """What ``data`` has under that key."""
        return self.data.get(key, default)

    def set(self, key: str, value: Any) -> None:
        """Put one value into ``data``; later hooks and whoever fired the event see it."""
        self.data[key] = value

    def update(self, updates: Mapping[str, Any]) -> None:
        """Put several values into ``data``."""
        self.data.update(updates)

    def copy(self) -> HookContext:
        """A context whose dictionaries are its own and whose values are the same objects.

        Example:
            >>> weights = bytearray(8)
            >>> one = HookContext(data={"weights": weights})
            >>> other = one.copy()
            >>> other.set("step", 1)
            >>> other.get("weights") is weights, "step" in one.data
            (True, False)
        """
        return HookContext(
            event=self.event,
            data=dict(self.data),
            checkpoint_id=self.checkpoint_id,
            experiment_id=self.experiment_id,
            user_data=dict(self.user_data),
            metadata=dict(self.metadata),
        )

    def adopt(self, other: HookContext) -> None:
        """Take over all that was done to the dictionaries of a copy, once it is known to be whole.

        Example:
            >>> context = HookContext(data={"step": 1, "draft": True})
            >>> copy = context.copy()
            >>> copy.set("note", "seen")
            >>> del copy.data["draft"]
            >>> context.adopt(copy)
            >>> context.data
            {'step': 1, 'note': 'seen'}
        """
        _adopt(self.data, other.data)
        _adopt(self.user_data, other.user_data)
        _adopt(self.metadata, other.metadata)


def _adopt(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Make ``mine`` what ``theirs`` is; by identity, because two tensors cannot be compared for a yes or no."""
    for key in [key for key in mine if key not in theirs]:
        del mine[key]
    mine.update(theirs)
