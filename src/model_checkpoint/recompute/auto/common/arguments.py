"""Arguments: take a call apart into leaves and put it together again."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

_CONTAINERS = (list, tuple, dict)
Spec = tuple[int, tuple[str, ...]] | pytree.TreeSpec


def flatten_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Spec]:
    """Return the leaves of a call and how to rebuild it with :func:`rebuild_call`.

    Example:
        >>> leaves, spec = flatten_call((1, [2, 3]), {"k": 4})
        >>> leaves, rebuild_call([10, 20, 30, 40], spec)
        ([1, 2, 3, 4], ((10, [20, 30]), {'k': 40}))
    """
    leaves = [*args, *kwargs.values()]
    # most calls are flat; the general walk costs more than the rest of a region's bookkeeping
    for leaf in leaves:
        if isinstance(leaf, _CONTAINERS):
            return pytree.tree_flatten((args, kwargs))
    return leaves, (len(args), tuple(kwargs))


def rebuild_call(leaves: list[Any], spec: Spec) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put the leaves back where :func:`flatten_call` found them."""
    if isinstance(spec, tuple):
        count, names = spec
        return tuple(leaves[:count]), dict(zip(names, leaves[count:], strict=True))
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return args, kwargs


def leaves_of(value: Any) -> list[Any]:
    """The leaves of a result: itself when it is a tensor."""
    if isinstance(value, Tensor):
        return [value]
    leaves: list[Any] = pytree.tree_leaves(value)
    return leaves
