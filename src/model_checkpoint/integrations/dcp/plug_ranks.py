"""Plug ranks: the ranks of a process group, and words that no other call of the program mixes up with its own.

``dcp.async_save`` runs in a thread while the program may save or load through the same group: what those say to each
other is counted apart, and kept apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist

from model_checkpoint import forks
from model_checkpoint.distributed.coordinators.torch_group import TorchCoordinator

_guard = forks.lock()
_known: WeakKeyDictionary[Any, dict[float, PlugRanks]] = WeakKeyDictionary()
forks.in_child(_known.clear)


class PlugRanks:
    """The coordinator of what goes through the plug; it has its own count of calls, and its own keys."""

    def __init__(self, inner: TorchCoordinator) -> None:
        self._inner = inner
        self.rank, self.world_size, self.patience = inner.rank, inner.world_size, inner.patience
        self.program_ranks = inner.program_ranks

    def put(self, key: str, value: bytes) -> None:
        """Let every rank find ``value`` under ``key``."""
        self._inner.put(f"dcp-{key}", value)

    def collect(self, keys: Sequence[str], until: float) -> dict[str, bytes]:
        """What is known of ``keys`` when all are there, or at ``until``."""
        found = self._inner.collect([f"dcp-{key}" for key in keys], until)
        return {key.removeprefix("dcp-"): value for key, value in found.items()}


def default_group(group: Any = None) -> Any:
    """The group that is meant: the one given, or that of all ranks; None where there is none."""
    if group is not None or not dist.is_available() or not dist.is_initialized():
        return group
    return dist.group.WORLD


def ranks_of(group: Any, patience: float) -> PlugRanks:
    """The ranks of a group: one object for all saves, since each has connections of its own."""
    with _guard:
        by_patience = _known.setdefault(group, {})
        if patience not in by_patience:
            by_patience[patience] = PlugRanks(TorchCoordinator(group, patience=patience))
        return by_patience[patience]
