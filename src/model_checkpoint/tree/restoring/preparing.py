"""Preparing: live objects that change their form before what was saved can fit them.

An object says so by a method ``prepare_to_load(saved)``. ``saved`` gives the plain value its saved state has under a
dotted name, None if it has none; the method returns the way back, or None if nothing had to change.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from model_checkpoint.errors import PartlyLoaded
from model_checkpoint.manifest import Node
from model_checkpoint.tree.nodes.names import join
from model_checkpoint.tree.nodes.specs import part_at
from model_checkpoint.tree.nodes.walk import ABSENT
from model_checkpoint.tree.restoring.build import Builder
from model_checkpoint.tree.restoring.live_specs import stateful_places

Saved = Callable[[str], Any]
Undo = Callable[[], None]


@runtime_checkable
class Preparing(Protocol):
    """A live object whose tensors depend on what it is about to be given."""

    def prepare_to_load(self, saved: Saved) -> Undo | None:
        """Take the form the saved state needs."""
        ...


class Preparation:
    """Objects prepared for one load, as a context: all go back to what they were if it fails and changed nothing.

    Example:
        >>> class Precise:
        ...     digits = 16
        ...     def state_dict(self): return {"digits": self.digits}
        ...     def load_state_dict(self, state): self.digits = state["digits"]
        ...     def prepare_to_load(self, saved):
        ...         before, self.digits = self.digits, saved("digits")
        ...         return lambda: setattr(self, "digits", before)
        >>> live = Precise()
        >>> with Preparation() as preparing:
        ...     preparing.run(["d", ["any", ["m", "object", "Precise", ["d", ["digits", 32]]]]], {"any": live})
        True
        >>> live.digits
        32
    """

    def __init__(self) -> None:
        self._undo: list[Undo] = []
        self._seen: set[int] = set()

    def run(self, tree: Node, into: Any) -> bool:
        """Prepare every object of ``into`` that ``tree`` has something for, once; tell whether there was one."""
        before = len(self._seen)
        for name, live in stateful_places(into):
            if not isinstance(live, Preparing) or id(live) in self._seen:
                continue
            if part_at(tree, name) != ABSENT if name else tree != ABSENT:
                self._seen.add(id(live))
                undo = live.prepare_to_load(_plain_values(tree, name))
                self._undo.extend([] if undo is None else [undo])
        return len(self._seen) > before

    def __enter__(self) -> Preparation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, PartlyLoaded):  # then the live arrays are in the new form already
            return
        while self._undo:
            self._undo.pop()()


def _plain_values(tree: Node, name: str) -> Saved:
    def saved(key: str) -> Any:
        node = part_at(tree, join(name, key))
        if node == ABSENT:
            return None
        builder = Builder([])  # knows no array, so that only plain values can be asked for
        builder.check(node, join(name, key))
        return builder.build(node)

    return saved
