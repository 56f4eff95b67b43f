"""Flatten: a state is taken apart into its tree and the arrays to store (step 1 of a save)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from model_checkpoint.errors import UnsupportedType
from model_checkpoint.manifest import Node
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.state import Flat, Leaf, Sharding, Source
from model_checkpoint.tree.arrays.aliasing import StoredArray, group_aliases
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.arrays.shards.sharded_ref import ShardedRef
from model_checkpoint.tree.flattening.encode import Encoder
from model_checkpoint.tree.nodes.located_error import LocatedError
from model_checkpoint.tree.nodes.rank_zero import names_of_rank_zero
from model_checkpoint.tree.nodes.walk import arrays


@collector_paused()
def flatten(state: Any) -> Flat:
    """Take any state apart.

    Raises:
        UnsupportedType: a value has a type nobody knows, a container holds itself, or two leaves have one name; the
            message names the path.

    Example:
        >>> flat = flatten({"epoch": 3, "lr": (0.5, None)})
        >>> flat.tree
        ['d', ['epoch', 3, 'lr', ['t', [['f', '0x1.0000000000000p-1'], None]]]]
    """
    encoder = Encoder()
    try:
        tree = encoder.encode(state)
    except LocatedError as error:
        raise error.located() from error.__cause__
    except RecursionError as error:
        raise UnsupportedType(
            "state: nested deeper than the stack has room for at this call. Save from a shallower call, or flatten it."
        ) from error
    if encoder.modules or encoder.optimizers:
        from model_checkpoint.tree.flattening import torch_owners

        torch_owners.annotate(tree, encoder)
    stored, apart = group_aliases(encoder.found)
    named = arrays(tree)
    _refuse_twins([name for name, _ in named])
    zero = names_of_rank_zero(tree, encoder.of_rank_zero) if encoder.of_rank_zero else ()
    if stored is None:
        leaves = [
            _leaf(name, one, one.kind) for (name, _), one in zip(named, _in_order(encoder.found, named), strict=True)
        ]
        return Flat(tree, leaves, owners=_owners(encoder), of_rank_zero=zero)
    names = {id(node): name for name, node in named}
    alone = {id(one) for one in apart}
    leaves = [
        _shared_leaf(names[id(what.members[0].node)], what, apart=id(what.members[0]) in alone) for what in stored
    ]
    return Flat(tree, leaves, tuple(names[id(one.node)] for one in apart), _owners(encoder), zero)


def _owners(encoder: Encoder) -> tuple[object, ...]:
    return tuple(owner for _, owner in (*encoder.modules, *encoder.optimizers))


def _in_order(found: Sequence[ArrayRef], named: Sequence[tuple[str, Node]]) -> Sequence[ArrayRef]:
    if len(found) != len(named):
        raise AssertionError("every array has exactly one node")
    return found


def _leaf(name: str, one: ArrayRef, kind: str) -> Leaf:
    dtype = one.dtype
    return Leaf(
        name,
        kind,
        dtype.name,
        one.shape,
        dtype.stored,
        dtype.stored_shape(one.shape),
        one,
        dtype.alignment,
        one.attributes,
        one.frozen,
        _sharding(one),
    )


def _sharding(source: Source) -> Sharding | None:
    return source.sharding if isinstance(source, ShardedRef) else None


def _shared_leaf(name: str, what: StoredArray, *, apart: bool) -> Leaf:
    dtype = what.dtype
    attributes = "apart" if apart else what.members[0].attributes
    stored_shape = dtype.stored_shape(what.shape)
    return Leaf(
        name,
        what.kind,
        dtype.name,
        what.shape,
        dtype.stored,
        stored_shape,
        what.source,
        dtype.alignment,
        attributes,
        what.frozen,
        _sharding(what.source),
    )


def _refuse_twins(names: list[str]) -> None:
    if len(set(names)) == len(names):
        return
    twin = next(name for name, count in Counter(names).items() if count > 1)
    raise UnsupportedType(
        f"{twin}: two arrays of the state come to this one name. Rename a key; NaN keys and keys of a module's extra "
        "state can look alike."
    )
