"""Kept numbers: what a dataset or a sampler counts by itself, such as epochs, and how a loader makes batches.

Nobody saves those: they are compared where a run is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from model_checkpoint.integrations.feeding.data_content import content_of


def numbers_of(*owners: Any) -> dict[str, Any]:
    """The numbers that objects have in attributes, by class and name.

    Those of whatever can be told which epoch it is follow from that.

    Example:
        >>> class Counting:
        ...     epoch, name = 3, "a"
        >>> numbers_of(Counting(), None)
        {'Counting.epoch': 3}
    """
    found: dict[str, Any] = {}
    for one in owners:
        if hasattr(one, "set_epoch"):
            continue
        kind: Any = type(one)
        found |= _of_class(kind)
        own = getattr(one, "__dict__", {})
        found |= {f"{kind.__name__}.{name}": each for name, each in own.items() if type(each) in (int, float)}
    return found


@lru_cache
def _of_class(kind: type) -> dict[str, float]:
    """Those that objects of a class begin with."""
    defined = {name: each for base in reversed(kind.__mro__) for name, each in vars(base).items()}
    return {f"{kind.__name__}.{name}": each for name, each in defined.items() if type(each) in (int, float)}


def named_content(data: Any) -> dict[str, int]:
    """A checksum of what data holds, as one more number; none of what has a state, since that may say what it reads.

    Example:
        >>> list(named_content([1, 2]))
        ['the content of list']
    """
    return {} if hasattr(data, "load_state_dict") else {f"the content of {type(data).__name__}": content_of(data)}


def shape_of(loader: Any) -> dict[str, Any]:
    """How a loader of torch makes batches.

    Example:
        >>> import torch
        >>> shape_of(torch.utils.data.DataLoader([1, 2, 3], batch_size=2))
        {'batch_size': 2, 'drop_last': False}
    """
    return {"batch_size": loader.batch_size, "drop_last": loader.drop_last}


def changed_numbers(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is to be said of those that are not what they were.

    Example:
        >>> changed_numbers({"Counting.epoch": 2, "Counting.size": 8}, {"Counting.epoch": 0, "Counting.size": 8})
        ['Counting.epoch was 2, is 0: make the data as it was, and what it counts follow from the epoch (set_epoch)']
    """
    return [
        f"{name} was {was}, is {now.get(name)}: make the data as it was, and what it counts follow from the epoch "
        "(set_epoch)"
        for name, was in before.items()
        if repr(now.get(name, was)) != repr(was)  # a number that is none is what it was
    ]
