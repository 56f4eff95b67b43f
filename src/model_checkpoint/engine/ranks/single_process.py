"""Alone: what a call without a coordinator can see of other ranks: parts of arrays, and a process group."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from model_checkpoint.errors import NeedsCoordinator
from model_checkpoint.state import Flat

_COORDINATORS = "TorchCoordinator(), MpiCoordinator() or JaxCoordinator() of model_checkpoint.distributed"


def refuse_shards(flat: Flat, where: str) -> None:
    """Raise if a state holds parts of arrays, and nobody was named who has the rest."""
    names = [leaf.name for leaf in flat.leaves if leaf.sharding is not None]
    if names:
        raise needs_coordinator(names, where, "save")


def needs_coordinator(names: list[str], where: str, verb: str) -> NeedsCoordinator:
    """The error for parts of arrays in a call of one process."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return NeedsCoordinator(
        f"{where}: {', '.join(names[:3])}{more} lie on many ranks, and this call is of one process. Make it on every "
        f"rank with coordinator= ({_COORDINATORS}), or {verb} whole tensors. Nothing was done.",
        where,
    )


def hint_at_ranks() -> str:
    """What to add to an error that ranks get who all save the same without knowing of each other; often nothing."""
    count, coordinator = max(_programs(), default=(1, ""))
    if count < 2:
        return ""
    return (
        f" This program has {count} ranks: if each of them saves, all save one checkpoint together only with "
        f"coordinator={coordinator}() (from model_checkpoint.distributed)."
    )


def _programs() -> Iterator[tuple[int, str]]:
    """How many ranks there are by each transport that the program has begun to use, and the coordinator for it."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        yield int(dist.get_world_size()), "TorchCoordinator"
    jax = sys.modules.get("jax._src.distributed")  # to ask jax itself would start its devices
    if jax is not None and jax.global_state.client is not None:
        yield int(jax.global_state.num_processes), "JaxCoordinator"
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        yield int(mpi.COMM_WORLD.size), "MpiCoordinator"
