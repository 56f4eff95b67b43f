"""Preempted ranks: all ranks of a program take notice of a coming end together, and save what all have time for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from model_checkpoint import tree
from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.common.info import CheckpointInfo, path_of
from model_checkpoint.engine.ranks.rank_agreement import agree
from model_checkpoint.engine.ranks.words import Word
from model_checkpoint.engine.root.listing import read_listed, to_info
from model_checkpoint.engine.writing.rank_saves.save_ranks import save_on_ranks
from model_checkpoint.engine.writing.request import SaveRequest
from model_checkpoint.engine.writing.save import rank_request
from model_checkpoint.errors import RankFailed
from model_checkpoint.state import Flat, Leaf
from model_checkpoint.storage.contract.store import Store

LeftOut = Callable[[Flat, dict[str, int]], tuple[str, ...]]  # what there is no time for, by the bytes of each leaf
Reduce = Callable[[Flat, Sequence[str]], Flat]
Rename = Callable[[SaveRequest, Sequence[str]], SaveRequest]


def least_left(ranks: Coordinator, left: float | None) -> float | None:
    """The least time that any rank has left; None if none of them was given notice."""

    def decide(words: list[Word]) -> Word:
        return {"left": min((word["left"] for word in words if word["left"] is not None), default=None)}

    found: float | None = agree(ranks, "notice", lambda: {"left": left}, decide)["left"]
    return found


def save_all_ranks(
    store: Store,
    order: SaveRequest,
    state: Any,
    ranks: Coordinator,
    *,
    left_out: LeftOut,
    reduce: Reduce,
    rename: Rename,
) -> CheckpointInfo:
    """Save together what every rank has time for; if the step is already saved, that is it."""
    taken: list[Flat] = []

    def mine() -> Word:
        taken.append(tree.flatten(state))
        sizes = {leaf.name: _own_bytes(leaf, ranks.world_size) for leaf in taken[0].leaves}
        return {"left_out": left_out(taken[0], sizes)}

    def decide(words: list[Word]) -> Word:
        names = dict.fromkeys(name for word in words for name in word["left_out"])  # what one has no time for
        return {"left_out": list(names), "there": order.step is not None and read_listed(store, order.name) is not None}

    agreed = agree(ranks, "preempted", mine, decide)
    if agreed["there"]:
        return _saved_before(store, order)
    dropped = tuple(agreed["left_out"])
    order = rename(order, dropped)
    asked = rank_request(store, lambda: order, bool(dropped))
    return save_on_ranks(store, asked, reduce(taken[0], dropped), coordinator=ranks, progress=None)


def _own_bytes(leaf: Leaf, world: int) -> int:
    """About what this rank will write of it: its part, or its share of what all have."""
    if leaf.sharding is None:
        return -(-leaf.nbytes // world)
    return sum(one.source.nbytes for one in leaf.sharding.arrays)


def _saved_before(store: Store, order: SaveRequest) -> CheckpointInfo:
    found = read_listed(store, order.name)
    if found is None:
        where = path_of(store, order.name)
        raise RankFailed(f"{where}: rank 0 finds this checkpoint, but it is not there on this rank.", where)
    return to_info(store, found)
