"""Torch optimizers: state goes to new tensors through ``load_state_dict``, matched by parameter name, dtypes kept.

State as large as its parameter lies in memory as that does: torch's fused steps go through memory, not by index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from model_checkpoint.manifest import Node
from model_checkpoint.tree.arrays.shards import torch_shards
from model_checkpoint.tree.arrays.torch_types import bare_optimizer
from model_checkpoint.tree.flattening.torch_owners import parameters
from model_checkpoint.tree.nodes.walk import MAPPINGS, array_nodes, tag_of
from model_checkpoint.tree.restoring.matching import Matching, ObjectLoad, inner_of
from model_checkpoint.tree.values.classes import label


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedOptimizer:
    """What a checkpoint knows of an optimizer without its tensors."""

    groups: list[list[int]]  # positions of the parameters, group by group
    keys: list[set[str]]  # the settings of each group
    names: list[str | None]
    shapes: list[tuple[int, ...] | None]


def match_optimizer(matching: Matching, node: Node, live: torch.optim.Optimizer, *, name: str) -> None:
    """Lay a saved optimizer state over a live optimizer, fresh or used."""
    inner = inner_of(node)
    saved = _read(matching, inner, node)
    if saved is None:
        whole = "its groups and state must be selected together (parts=)"
        matching.problem(name, f"saved is no whole optimizer state, {whole}")
        return
    places = _places(matching, saved, live, name=name)
    if places is None or not _settings_fit(matching, saved, live, name=name, node=node):
        return
    _lay_out_like_parameters(matching, inner, live, places=places, name=name)
    make = matching.fresh(inner, name)
    if make is None or not matching.stays_torch(inner, name):
        return

    def apply(state: Any) -> None:
        load_exactly(live, state)

    def arranged() -> Any:
        return _arranged(make(), saved, live, places=places)

    matching.loads.append(ObjectLoad(name, make=arranged, apply=apply, present=live.state_dict))


def _read(matching: Matching, inner: Node, node: Node) -> _SavedOptimizer | None:
    """Return the groups of a saved optimizer, or None if it is not all there."""
    if not isinstance(inner, list) or tag_of(inner) not in MAPPINGS:
        return None
    parts = matching.saved_items(inner)
    groups = parts.get("param_groups")
    if "state" not in parts or not isinstance(groups, list) or tag_of(groups) != "l":
        return None
    items = [matching.saved_items(group) for group in groups[1] if tag_of(group) in MAPPINGS]
    places = [item.get("params") for item in items]
    if len(items) != len(groups[1]) or not all(isinstance(p, list) and tag_of(p) == "l" for p in places):
        return None
    flat = [list(place[1]) for place in places if isinstance(place, list)]
    count = sum(len(group) for group in flat)
    known = node[4] if isinstance(node, list) and tag_of(node) == "m" and len(node) > 4 else [[None, None]] * count
    if [i for group in flat for i in group] != list(range(count)) or len(known) != count:
        return None
    return _SavedOptimizer(
        groups=flat,
        keys=[set(item) for item in items],
        names=[one[0] for one in known],
        shapes=[None if one[1] is None else tuple(one[1]) for one in known],
    )


def _places(matching: Matching, saved: _SavedOptimizer, live: torch.optim.Optimizer, *, name: str) -> list[int] | None:
    """Return for each live parameter the saved position it takes its state from, or note why not."""
    mine = parameters(live)
    sizes = [len(group["params"]) for group in live.param_groups]
    if [len(group) for group in saved.groups] != sizes:
        matching.problem(
            name, f"saved with parameter groups of {[len(g) for g in saved.groups]} parameters, live they have {sizes}"
        )
        return None
    names = [matching.parameter_names.get(id(parameter)) for parameter in mine]
    places = _by_name(saved, names, sizes) if None not in names and None not in saved.names else list(range(len(mine)))
    if places is None:
        odd = sorted(set(map(str, names)) ^ set(map(str, saved.names)))[:4]
        matching.problem(
            name, f"its parameters are named or grouped otherwise than saved, differing: {odd or 'groups'}"
        )
        return None
    for parameter, place in zip(mine, places, strict=True):
        shape = saved.shapes[place]
        if shape is not None and shape != tuple(parameter.shape):
            who = saved.names[place] or f"parameter {place}"
            matching.problem(name, f"{who} was saved with shape {list(shape)}, live it has {list(parameter.shape)}")
            return None
    return places


def _lay_out_like_parameters(
    matching: Matching, inner: Any, live: torch.optim.Optimizer, *, places: list[int], name: str
) -> None:
    """Let state that has the shape of a parameter on many ranks lie on them as the parameter does."""
    by_place = dict(zip(places, parameters(live), strict=True))
    states: Any = matching.saved_items(inner).get("state")
    for place, state in matching.saved_items(states).items() if tag_of(states) in MAPPINGS else ():
        parameter = by_place.get(place)
        if parameter is None or not torch_shards.is_dtensor(type(parameter)):
            continue
        found = torch_shards.find_dtensor(parameter)
        for node in array_nodes(state):
            if found.shape and matching.builder.described(node)[1] == found.shape:
                matching.builder.memory_like(node, name, found)


def _by_name(saved: _SavedOptimizer, names: list[str | None], sizes: list[int]) -> list[int] | None:
    """Match parameters by name, each group with the group in the same place."""
    at = {saved_name: position for position, saved_name in enumerate(saved.names)}
    if set(at) != set(names):  # a checkpoint of a wrapped module, whose names were kept as they were
        at, names = {_bare(one): position for one, position in at.items()}, [_bare(one) for one in names]
    if len(at) != len(saved.names) or set(at) != set(names):
        return None
    places = [at[one] for one in names]
    start = 0
    for size, group in zip(sizes, saved.groups, strict=True):
        if set(places[start : start + size]) != set(group):
            return None
        start += size
    return places


def _bare(name: str | None) -> str | None:
    """Return a parameter's name without the parts that a wrapper may have put anywhere into it."""
    return name and ".".join(part for part in name.split(".") if part not in ("module", "_orig_mod"))


def _settings_fit(
    matching: Matching, saved: _SavedOptimizer, live: torch.optim.Optimizer, *, name: str, node: Any
) -> bool:
    """Refuse the state of another kind of optimizer: its settings have other names."""
    recorded, kind = node[2] if tag_of(node) == "m" else None, label(type(bare_optimizer(live)))
    if recorded in (None, kind):
        return True
    lacking = [key for key in live.defaults for keys in saved.keys if key not in keys]
    if lacking:
        matching.problem(name, f"saved from {recorded}, live it is {kind}, whose {lacking[0]!r} is not saved")
    return not lacking


def _arranged(state: Any, saved: _SavedOptimizer, live: torch.optim.Optimizer, *, places: list[int]) -> dict[str, Any]:
    """Return the saved state with the positions the live optimizer gives its parameters."""
    by_place = {place: position for position, place in enumerate(places)}
    moved = {by_place.get(key, key): value for key, value in state["state"].items()}
    start = 0
    groups = []
    for group, mine in zip(state["param_groups"], live.param_groups, strict=True):
        count = len(mine["params"])
        groups.append({**group, "params": list(range(start, start + count))} | _names(group, places, start))
        start += count
    return {**state, "state": moved, "param_groups": groups}


def _names(group: dict[str, Any], places: list[int], start: int) -> dict[str, Any]:
    """Return torch's own parameter names of a group in live order, where it kept them."""
    names = group.get("param_names")
    if names is None:
        return {}
    order = places[start : start + len(names)]
    return {"param_names": [names[place - min(order)] for place in order]}


def load_exactly(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load ``state`` and undo the casts torch makes to the parameters' dtype.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
        >>> adam = torch.optim.Adam([weight])
        >>> moments = {"step": torch.tensor(1.0), "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
        >>> load_exactly(adam, {**adam.state_dict(), "state": {0: moments}})
        >>> adam.state[weight]["exp_avg"].dtype
        torch.float32
    """
    optimizer.load_state_dict(state)
    for position, parameter in enumerate(parameters(optimizer)):
        mine = optimizer.state.get(parameter)
        saved = state["state"].get(position)
        if isinstance(saved, dict) and isinstance(mine, dict):
            _restore_dtypes(mine, saved)
            mine.update({key: _laid_like(parameter, value) for key, value in mine.items()})


def _laid_like(parameter: torch.Tensor, value: Any) -> Any:
    """Return ``value``, but a plain tensor of the parameter's shape in the parameter's order in memory."""
    if type(value) is not torch.Tensor or value.shape != parameter.shape or torch_shards.is_dtensor(type(parameter)):
        return value
    if {value.layout, parameter.layout} != {torch.strided} or value.stride() == parameter.stride():
        return value
    return torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


def _restore_dtypes(mine: dict[Any, Any], saved: dict[Any, Any]) -> None:
    for key, value in saved.items():
        if key in mine:
            mine[key] = _as_saved(mine[key], value)


def _as_saved(present: Any, saved: Any) -> Any:
    """Return ``present``, but texts, and tensors whose dtype is not the saved one, as they were saved."""
    if isinstance(saved, torch.Tensor) and isinstance(present, torch.Tensor):
        return present if present.dtype == saved.dtype else saved.to(present.device)
    if isinstance(saved, str):  # torch takes a text for a sequence, and makes another text of it
        return saved
    if isinstance(saved, dict) and isinstance(present, dict):
        _restore_dtypes(present, saved)
    elif type(saved) in (list, tuple) and type(present) is type(saved) and len(present) == len(saved):
        return type(saved)(map(_as_saved, present, saved))
    return present
