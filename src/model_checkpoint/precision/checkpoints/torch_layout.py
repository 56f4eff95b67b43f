"""Torch layout: the tree as a ``state_dict`` any tool for torch optimizers recognises.

``state`` and ``param_groups`` are where torch has them, by position; everything else is under ``mixed_precision``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model_checkpoint.errors import CorruptedCheckpoint

_OURS = "mixed_precision"
OBSERVATIONS = tuple(f"{_OURS}.{name}" for name in ("timestamp", "performance", "timeline", "numerics"))  # of a process


def to_state_dict(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A tree of :func:`to_tree` in torch's layout."""
    base = tree["base"]
    names = [name for group in base["groups"] for name in group["params"]]
    position = {name: place for place, name in enumerate(names)}
    return {
        "state": {position[name]: entries for name, entries in base["state"].items()},
        "param_groups": [
            {**group["values"], "params": [position[name] for name in group["params"]]} for group in base["groups"]
        ],
        _OURS: {**tree, "base": {"kind": base["kind"], "names": names}},
    }


def from_state_dict(state: Mapping[str, Any]) -> dict[str, Any]:
    """The tree a ``state_dict`` was made from; one of a plain torch optimizer is refused."""
    if not isinstance(state, Mapping):
        raise CorruptedCheckpoint(
            f"state_dict: got {type(state).__name__}, expected a mapping. Pass what state_dict() returned."
        )
    ours = state.get(_OURS)
    if ours is None or not {"state", "param_groups"} <= set(state):
        raise CorruptedCheckpoint(
            f"state_dict: holds {sorted(map(str, state))[:5]}, expected state, param_groups and {_OURS}. "
            "It is of a plain optimizer: load it into opt.base_optimizer, whose masters are FP32."
        )
    names = ours["base"]["names"]
    groups = [
        {
            "values": {key: value for key, value in group.items() if key not in ("params", "param_names")},
            "params": [names[place] for place in group["params"]],
        }
        for group in state["param_groups"]
    ]
    entries = {names[place]: one for place, one in state["state"].items()}
    return {**ours, "base": {"kind": ours["base"]["kind"], "state": entries, "groups": groups}}
