"""Consensus: all processes that train one model take the same verdict on each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

DEFAULT_GROUP = "default"


def agree_on(flags: Sequence[bool], *, group: Any, device: torch.device) -> list[bool]:
    """True where any process says True; the flags as they are when only one process trains.

    Example:
        >>> agree_on([True, False], group=None, device=torch.device("cpu"))
        [True, False]
    """
    world = torch.distributed
    if group is None or not (world.is_available() and world.is_initialized()):
        return list(flags)
    members = None if group == DEFAULT_GROUP else group
    if world.get_world_size(members) == 1:
        return list(flags)
    votes = torch.tensor(list(flags), dtype=torch.int32, device=device)
    world.all_reduce(votes, op=world.ReduceOp.MAX, group=members)
    return [bool(vote) for vote in votes.tolist()]
