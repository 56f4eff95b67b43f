"""Key pool: the keys of all ranks, pooled.

DCP strikes what several ranks have from the plans of all but one of them, so no rank knows by its plan alone which
tensors the state has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.ranks.conversation import Conversation
from model_checkpoint.errors import CheckpointException
from model_checkpoint.integrations.dcp.plan_items import HeldItems, SplitTensor
from model_checkpoint.tree.arrays.torch_arrays import torch_dtype

Word = dict[str, Any]


def pool_keys(coordinator: Coordinator, find: Callable[[], HeldItems]) -> tuple[HeldItems, Mapping[str, SplitTensor]]:
    """What this rank has, and every split tensor of the state: those of others without a part here.

    What goes wrong while one rank finds out is raised on all.
    """
    with Conversation(coordinator, "keys") as talk:
        try:
            mine = find()
            word: Word = {"split": {fqn: _told(one) for fqn, one in mine.split.items()}, "flat": mine.flat}
        except BaseException as error:
            raise _excused(talk, error) from error
        if talk.leads:
            try:
                every: Word = {}
                for heard in talk.hear_all("keys", word):
                    every |= {fqn: told for fqn, told in heard["split"].items() if fqn not in every}
            except BaseException as error:
                raise talk.fail("pool", error) from error
            talk.say("pool", {"split": every})
        else:
            talk.say("keys", word)
            every = talk.hear_leader("pool")["split"]
    return mine, {fqn: mine.split.get(fqn) or _elsewhere(told) for fqn, told in every.items()}


def _told(one: SplitTensor) -> list[Any]:
    return [one.path, str(one.dtype).removeprefix("torch."), one.shape]


def _elsewhere(told: list[Any]) -> SplitTensor:
    path, dtype, shape = told
    return SplitTensor(tuple(path), torch_dtype(dtype), tuple(shape), ())


def _excused(talk: Conversation, error: BaseException) -> BaseException:
    """Tell the others why this rank has nothing to tell; return what to raise."""
    if talk.leads:
        return talk.fail("pool", error)
    talk.say_error("keys", error)
    try:
        talk.hear_leader("pool")
    except CheckpointException as told:
        return told
    return error
