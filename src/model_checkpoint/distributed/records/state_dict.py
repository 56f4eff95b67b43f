"""State dict: named tensors, and the contract of the objects that give and take them."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


class StateDict(dict[str, Any]):
    """Tensors, and what belongs to them, by name.

    Example:
        >>> state = StateDict({"weight": [1.0, 2.0]})
        >>> state.get_tensor("weight"), state.get_tensor_or_null("bias"), state.has_tensor("bias")
        ([1.0, 2.0], None, False)
        >>> state.remove_tensor("weight"), len(state)
        (True, 0)
    """

    def get_tensor(self, name: str) -> Any:
        """The tensor of that name; raise ``KeyError`` if there is none."""
        if name not in self:
            known = ", ".join(list(self)[:8]) or "none"
            raise KeyError(f"no tensor {name!r} in this state; it has {len(self)}: {known}")
        return self[name]

    def get_tensor_or_null(self, name: str) -> Any:
        """The tensor of that name, or None."""
        return self.get(name)

    def has_tensor(self, name: str) -> bool:
        """Whether there is one of that name."""
        return name in self

    def remove_tensor(self, name: str) -> bool:
        """Take it out; whether it was there."""
        return self.pop(name, self) is not self


@runtime_checkable
class Stateful(Protocol):
    """An object that gives its state as named tensors and takes it back.

    Modules and optimizers of torch, Keras models and anything with ``state_dict`` and ``load_state_dict`` work as they
    are; this is the least a class of one's own needs.
    """

    def get_state_dict(self) -> Any:
        """The state, by name; a load fills a copy of it, so names, shapes and layouts are those of now."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Take a state over, given as a :class:`StateDict`."""
        ...
