"""Way: how one training is saved and resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.integrations.killing import checkpoints


@dataclass(frozen=True, slots=True)
class Way:
    """``train(root, out, kind=..., pause=...)`` goes on from what lies in ``root`` and writes to ``out`` how it ends.

    Ours write down everything that must be the same, generators and metrics among it; theirs the weights.
    """

    name: str
    train: Callable[..., None]
    kinds: tuple[str, ...]
    saved: Callable[[Path], bool]  # whether a whole checkpoint lies there
    ours: bool = False


def ours(name: str, train: Callable[..., None], kinds: tuple[str, ...]) -> Way:
    """The same training under a run."""
    return Way(name, train, kinds, lambda root: bool(checkpoints(root)), ours=True)


__all__ = ["Way", "ours"]
