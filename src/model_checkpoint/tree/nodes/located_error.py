"""Located error: a problem met deep in a tree, which learns its path on the way up."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, UnsupportedType
from model_checkpoint.tree.nodes.names import shown

CODEC = "Convert it, or teach the library with model_checkpoint.register_codec({name}, encode, decode)."


class LocatedError(Exception):
    """What is wrong with a value; the containers around it add their keys while it passes them."""

    def __init__(self, what: str, error: type[CheckpointException] = UnsupportedType) -> None:
        super().__init__(what)
        self.what, self.error = what, error
        self.keys: list[object] = []

    def located(self) -> CheckpointException:
        """Return the public error, its message beginning with the path."""
        return self.error(f"{shown(self.keys[::-1])}: {self.what}")


def no_codec(cls: type, what: str = "") -> LocatedError:
    """Return the trouble with a type nobody knows."""
    name = cls.__qualname__
    return LocatedError(f"{what or f'cannot save a value of type {cls.__module__}.{name}'}. {CODEC.format(name=name)}")
