"""Torch modules: read into their own tensors where that is all loading means, else through ``load_state_dict``."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from model_checkpoint.manifest import Node
from model_checkpoint.tree.arrays.shards import torch_shards
from model_checkpoint.tree.nodes.names import final, join, undotted
from model_checkpoint.tree.nodes.walk import ARRAYS, MAPPINGS, leaves, tag_of
from model_checkpoint.tree.restoring.matching import Matching, ObjectLoad, inner_of
from model_checkpoint.tree.restoring.torch_module_state import ModuleState, StateItem


def match_module(matching: Matching, node: Node, module: torch.nn.Module, *, name: str) -> None:
    """Lay a saved state_dict over a live module."""
    inner = inner_of(node)
    if not isinstance(inner, list) or tag_of(inner) not in MAPPINGS:
        matching.problem(name, f"live it is a {type(module).__qualname__}, saved was no state_dict")
        return
    saved, live = dict(leaves(inner)), matching.live.module(module)
    both = [(saved[final(item.name)], item) for item in live.items if final(item.name) in saved]
    if _is_plain(live, both):
        for node_, item in both:
            matching.fill(node_, item.value, join(name, item.name))
        return
    _compare(matching, both, name)
    _load_whole(matching, inner, module, name=name, live=live.items)


def _is_plain(live: ModuleState, both: list[tuple[Node, StateItem]]) -> bool:
    tensors = all(isinstance(item.value, torch.Tensor) and tag_of(node) in ARRAYS for node, item in both)
    return tensors and not live.needs_its_own_load


def _compare(matching: Matching, both: list[tuple[Node, StateItem]], name: str) -> None:
    """Note tensors that torch would refuse late, or cast without a word."""
    for node, item in both:
        if not isinstance(item.value, torch.Tensor) or not isinstance(node, list) or node[0] not in ARRAYS:
            continue
        where = join(name, item.name)
        dtype, shape = matching.builder.described(node)
        live, same_shape = str(item.value.dtype).removeprefix("torch."), shape == tuple(item.value.shape)
        if dtype != live and same_shape and matching.destinations.takes_cast(dtype, live):
            matching.destinations.casts.append((where, dtype, live))
        elif dtype != live or not same_shape:
            matching.problem(where, f"saved {dtype} {list(shape)}, live {live} {list(item.value.shape)}")


def _load_whole(
    matching: Matching, inner: list[Any], module: torch.nn.Module, *, name: str, live: list[StateItem]
) -> None:
    _lay_out_like_live(matching, inner, live, name=name)
    make = matching.fresh(inner, name)
    if make is None or not matching.stays_torch(inner, name):
        return
    nested = any(isinstance(item, list) and item[0] in MAPPINGS for item in inner[1][1::2])
    own = {undotted(item.name): item.key for item in live}

    def state() -> Any:
        if not nested or inner[0] == "o":
            return make()
        named = ((undotted(key), matching.builder.build(item)) for key, item in leaves(inner))
        return OrderedDict(named)

    def apply(saved: Any) -> None:
        module.load_state_dict(_under_own_keys(saved, own), strict=set(own) <= set(saved))

    def present() -> Any:
        return module.state_dict()

    matching.loads.append(ObjectLoad(name, make=state, apply=apply, present=present))


def _lay_out_like_live(matching: Matching, inner: list[Any], live: list[StateItem], *, name: str) -> None:
    """Let what goes to tensors on many ranks lie on them as those do."""
    saved = dict(leaves(inner))
    for item in live:
        node = saved.get(final(item.name))
        if isinstance(node, list) and tag_of(node) in ARRAYS and torch_shards.is_dtensor(type(item.value)):
            matching.builder.memory_like(node, join(name, item.name), torch_shards.find_dtensor(item.value))


def _under_own_keys(saved: Any, own: dict[str, str]) -> Any:
    """Return a state_dict with the keys a wrapped module has itself."""
    if all(own.get(key, key) == key for key in saved):
        return saved
    made = OrderedDict((own.get(key, key), value) for key, value in saved.items())
    made._metadata = getattr(saved, "_metadata", None)  # type: ignore[attr-defined]
    return made
