"""Key pool: the keys of all ranks, pooled.

DCP strikes what several ranks have from the plans of all but one of them, so no rank knows by its plan alone which
tensors the state has. Where all have parts of the same, as is usual, a digest tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import xxhash

from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.ranks.conversation import Conversation
from model_checkpoint.engine.ranks.rank_agreement import excused
from model_checkpoint.integrations.dcp.plan_items import HeldItems, SplitTensor
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.tree.arrays.torch_arrays import torch_dtype

Word = dict[str, Any]


def pool_keys(coordinator: Coordinator, find: Callable[[], HeldItems]) -> tuple[HeldItems, Mapping[str, SplitTensor]]:
    """What this rank has, and every split tensor of the state: those of others without a part here.

    What goes wrong while one rank finds out is raised on all.
    """
    with Conversation(coordinator, "keys") as talk:
        try:
            with collector_paused():
                mine = find()
                split = {fqn: _told(one) for fqn, one in mine.split.items()}
            digest = xxhash.xxh3_128_hexdigest(msgspec.json.encode(split))
        except BaseException as error:
            raise excused(talk, error, said="digest", heard="same") from error
        if talk.leads:
            every = _lead(talk, split, digest)
        else:
            talk.say("digest", {"of": digest})
            every = split
            if not talk.hear_leader("same")["all"]:
                talk.say("keys", {"split": split})
                every = talk.hear_leader("pool")["split"]
    return mine, {fqn: mine.split.get(fqn) or _elsewhere(told) for fqn, told in every.items()}


def _lead(talk: Conversation, split: Word, digest: str) -> Word:
    """Rank 0: ask all for their keys, unless they have the same."""
    try:
        same = all(heard["of"] == digest for heard in talk.hear_all("digest", {"of": digest}))
    except BaseException as error:
        raise talk.fail("same", error) from error
    talk.say("same", {"all": same})
    if same:
        return split
    every: Word = {}
    try:
        for heard in talk.hear_all("keys", {"split": split}):
            every |= {fqn: told for fqn, told in heard["split"].items() if fqn not in every}
    except BaseException as error:
        raise talk.fail("pool", error) from error
    talk.say("pool", {"split": every})
    return every


def _told(one: SplitTensor) -> list[Any]:
    return [one.path, str(one.dtype).removeprefix("torch."), one.shape]


def _elsewhere(told: list[Any]) -> SplitTensor:
    path, dtype, shape = told
    return SplitTensor(tuple(path), torch_dtype(dtype), tuple(shape), ())
