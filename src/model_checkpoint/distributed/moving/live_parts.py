"""Live parts: what the engine is to save of a user's objects, and to fill.

Modules, optimizers and whatever has ``state_dict`` go to the engine as they are. An object with the two methods of
:class:`Stateful` is asked for its state: that is saved, or filled as to names, shapes and layouts, and handed back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint.distributed.records.state_dict import StateDict
from model_checkpoint.errors import UnsupportedType
from model_checkpoint.manifest import Node
from model_checkpoint.tree import part_at
from model_checkpoint.tree.arrays.frameworks import object_kind, state_of
from model_checkpoint.tree.nodes.walk import MAPPINGS


def gives_itself(value: Any) -> bool:
    """Whether an object has the methods of :class:`Stateful`, and none the engine knows."""
    cls = type(value)
    return (
        callable(getattr(cls, "get_state_dict", None))
        and callable(getattr(cls, "load_state_dict", None))
        and not hasattr(cls, "state_dict")
    )


def state_to_save(value: Any, part: str) -> Any:
    """What is saved of an object: itself, or the state it gives."""
    if not gives_itself(value):
        return value
    return _plain(_asked(value, part))


def _asked(value: Any, part: str) -> Mapping[str, Any]:
    state = value.get_state_dict()
    if not isinstance(state, Mapping):
        raise UnsupportedType(
            f"{part}: get_state_dict() of {type(value).__qualname__} gives {type(state).__qualname__}, expected a "
            "StateDict or another mapping. Nothing was done."
        )
    return state


def _plain(value: Any) -> Any:
    """The same with ordinary dicts in place of StateDicts."""
    if isinstance(value, StateDict) or type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    return dict(value) if isinstance(value, Mapping) and object_kind(type(value)) is None else value


@dataclass(frozen=True, slots=True)
class LivePart:
    """One object that a load fills: what the engine fills of it, and how it gets the result."""

    name: str
    owner: Any
    filled: Any

    @classmethod
    def of(cls, name: str, owner: Any, tree: Node, *, grows: bool = False) -> LivePart:
        """An object to be filled from a saved tree.

        One that ``grows``, as an optimizer does with its first step, also takes what it does not have yet.
        """
        if not gives_itself(owner):
            return cls(name, owner, owner)
        filled = _plain(_asked(owner, name))
        if grows:
            filled |= {key: None for key in _keys(part_at(tree, name)) if key not in filled}
        return cls(name, owner, filled)

    def hand_over(self) -> None:
        """Give the object its new state, if it has not got it already."""
        if self.filled is not self.owner:
            self.owner.load_state_dict(StateDict(self.filled))

    def state(self) -> StateDict:
        """The state the object has now."""
        if isinstance(self.owner, Mapping):
            return StateDict(self.owner)
        state = state_of(self.owner)
        return StateDict(state if isinstance(state, Mapping) else {self.name: state})


def _keys(node: Node) -> Sequence[Any]:
    if isinstance(node, list) and node and node[0] == "m":
        node = node[3]
    if isinstance(node, list) and node and node[0] in MAPPINGS:
        keys: list[Any] = node[1][::2]
        return keys
    return ()
