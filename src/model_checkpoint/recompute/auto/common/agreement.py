"""Agreement: let all processes of a job decide alike, by taking the first one's word."""

from __future__ import annotations

from typing import TypeVar

import torch.distributed as dist

T = TypeVar("T")


def agree_with_first(value: T) -> T:
    """Return the value of rank 0 on every rank; without a process group, the value itself.

    Example:
        >>> agree_with_first(3)
        3
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
