"""Base state: an optimizer's state and hyper-parameters by parameter name, as a plain tree, and back.

torch's own ``load_state_dict`` casts FP32 moments to the dtype of 16-bit parameters and matches by position; this
keeps every bit and matches by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from model_checkpoint.precision.errors import InvalidArgument, UnsupportedOptimizer
from model_checkpoint.precision.parameters.parameter_table import ParameterTable

Leaf = Callable[[torch.Tensor], torch.Tensor]


def capture_base(table: ParameterTable, *, leaf: Leaf) -> dict[str, Any]:
    """State and groups of the base by name; ``leaf`` copies each tensor or hands it on."""
    base = table.base
    extra = sorted(set(base.state_dict()) - {"state", "param_groups"})
    if extra:
        raise UnsupportedOptimizer(
            f"{type(base).__name__}: its state_dict has {extra} beside state and param_groups, which cannot be kept "
            "by parameter name. Save these yourself and pass metadata."
        )
    names: dict[torch.Tensor, str] = {slot.master: slot.name for slot in table.slots}
    state = {names[master]: _walk(dict(entries), leaf) for master, entries in base.state.items() if master in names}
    return {"kind": type(base).__name__, "state": state, "groups": _describe_groups(table, leaf)}


def _describe_groups(table: ParameterTable, leaf: Leaf) -> list[dict[str, Any]]:
    groups = []
    for place, group in enumerate(table.base.param_groups):
        values = {key: _walk(value, leaf) for key, value in group.items() if key not in ("params", "param_names")}
        groups.append({"values": values, "params": [slot.name for slot in table.slots if slot.group == place]})
    return groups


def name_torch_state(given: Mapping[str, Any], table: ParameterTable, *, leaf: Leaf) -> dict[str, Any]:
    """A torch ``state_dict`` of the base, re-keyed from positions to names."""
    if not {"state", "param_groups"} <= set(given):
        raise InvalidArgument(
            f"base_optimizer_state: has keys {sorted(given)[:5]}, expected state and param_groups. "
            "Pass base.state_dict(), or None to have it captured."
        )
    return rekey_by_position(given, [slot.name for slot in table.slots], type(table.base).__name__, leaf=leaf)


def rekey_by_position(given: Mapping[str, Any], names: Sequence[str], kind: str, *, leaf: Leaf) -> dict[str, Any]:
    """The same for a known order of names."""
    positions = [place for group in given["param_groups"] for place in group["params"]]
    if len(positions) != len(names):
        raise InvalidArgument(
            f"base_optimizer_state: holds {len(positions)} parameters, expected {len(names)}. It is of another model."
        )
    by_position = dict(zip(positions, names, strict=True))
    groups = [
        {
            "values": {k: _walk(v, leaf) for k, v in group.items() if k not in ("params", "param_names")},
            "params": [by_position[place] for place in group["params"]],
        }
        for group in given["param_groups"]
    ]
    state = {by_position[int(place)]: _walk(dict(entries), leaf) for place, entries in given["state"].items()}
    return {"kind": kind, "state": state, "groups": groups}


def apply_base(table: ParameterTable, tree: Mapping[str, Any]) -> None:
    """Replace the base's state and hyper-parameters by copies of those in ``tree``."""
    staged = []
    for slot in table.slots:
        entries = tree["state"].get(slot.name)
        copier = _copy_beside(slot.master)
        staged.append((slot.master, None if entries is None else _walk(dict(entries), copier)))
    for master, entries in staged:
        if entries is None:
            table.base.state.pop(master, None)
        else:
            table.base.state[master] = entries
    for group, stored in zip(table.base.param_groups, tree["groups"], strict=True):
        for key, value in stored["values"].items():
            _set_value(group, key, value)


def _set_value(group: dict[str, Any], key: str, value: Any) -> None:
    live = group.get(key)
    if isinstance(live, torch.Tensor) and isinstance(value, torch.Tensor):
        live.copy_(value)  # schedulers hold this very tensor
    elif isinstance(live, tuple) and isinstance(value, list):
        group[key] = tuple(value)
    else:
        group[key] = value.clone() if isinstance(value, torch.Tensor) else value


def _copy_beside(master: torch.Tensor) -> Leaf:
    def copy(value: torch.Tensor) -> torch.Tensor:
        # counters are 0-d and live on the CPU even for accelerator parameters
        device = master.device if value.ndim else value.device
        if value.shape == master.shape:  # fused steps go through memory, so moments must lie there as the master does
            return torch.empty_like(master, dtype=value.dtype, device=device).copy_(value.detach())
        return value.detach().to(device, copy=True)

    return copy


def _walk(value: Any, leaf: Leaf) -> Any:
    """The same nesting with every tensor passed through ``leaf``; unknown types are refused."""
    if isinstance(value, torch.Tensor):
        return leaf(value)
    if isinstance(value, Mapping):
        return {key: _walk(one, leaf) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_walk(one, leaf) for one in value)
    if isinstance(value, list):
        return [_walk(one, leaf) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UnsupportedOptimizer(
        f"base optimizer state: a value is a {type(value).__name__}, expected tensors and plain values. "
        "Keep it out of the optimizer's state."
    )
