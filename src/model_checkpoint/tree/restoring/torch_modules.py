"""Torch modules: read into their own tensors where that is all loading means, else through ``load_state_dict``."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from model_checkpoint.manifest import Node
from model_checkpoint.tree.nodes.names import dotted, final, join, undotted
from model_checkpoint.tree.nodes.walk import ARRAYS, MAPPINGS, leaves, tag_of
from model_checkpoint.tree.restoring.build import Builder
from model_checkpoint.tree.restoring.stateful_objects import ObjectLoad, inner_of, stays_torch

if TYPE_CHECKING:
    from model_checkpoint.tree.restoring.matcher import Matcher

_HOOKS = (
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
)
_METHODS = ("load_state_dict", "_load_from_state_dict", "state_dict", "_save_to_state_dict", "get_extra_state")
# these only fill in a counter that checkpoints of old torch versions lack
_HARMLESS = ("torch.nn.modules.batchnorm", "torch.nn.modules.instancenorm")


def match_module(matcher: Matcher, node: Node, module: torch.nn.Module, *, name: str) -> None:
    """Lay a saved state_dict over a live module."""
    inner = inner_of(node)
    if not isinstance(inner, list) or tag_of(inner) not in MAPPINGS:
        matcher.problem(name, f"live it is a {type(module).__qualname__}, saved was no state_dict")
        return
    live = module.state_dict()
    saved = dict(leaves(inner))
    pairs = [(final(dotted(key)), value) for key, value in live.items()]
    both = [(key, saved[key], value) for key, value in pairs if key in saved]
    if _is_plain(module, both):
        for key, item, tensor in both:
            matcher.landing.match(item, tensor, join(name, key))
        return
    _compare(matcher, both, name)
    _load_whole(matcher, inner, module, name=name, live=live)


def _is_plain(module: torch.nn.Module, both: list[tuple[str, Node, Any]]) -> bool:
    tensors = all(isinstance(value, torch.Tensor) and tag_of(item) in ARRAYS for _, item, value in both)
    return tensors and not any(_needs_its_own_load(part) for part in module.modules())


def _needs_its_own_load(module: torch.nn.Module) -> bool:
    if any(getattr(module, hooks, None) for hooks in _HOOKS):
        return True
    return any(
        (own := getattr(type(module), method)) is not getattr(torch.nn.Module, method)
        and own.__module__ not in _HARMLESS
        for method in _METHODS
    )


def extra_keys(module: torch.nn.Module) -> list[str]:
    """Return the keys of a module's state_dict that hold no tensors: extra state, or what hooks add."""
    if not any(map(_needs_its_own_load, module.modules())):
        return []
    return [key for key, value in module.state_dict().items() if not isinstance(value, torch.Tensor)]


def _compare(matcher: Matcher, both: list[tuple[str, Node, Any]], name: str) -> None:
    """Note tensors that torch would refuse late, or cast without a word."""
    for key, item, value in both:
        if not isinstance(value, torch.Tensor) or not isinstance(item, list) or item[0] not in ARRAYS:
            continue
        dtype, shape = described(matcher.builder, item, join(name, key))
        live = str(value.dtype).removeprefix("torch.")
        if (dtype, shape) != (live, tuple(value.shape)):
            matcher.problem(join(name, key), f"saved {dtype} {list(shape)}, live {live} {list(value.shape)}")


def described(builder: Builder, node: list[Any], name: str) -> tuple[str, tuple[int, ...]]:
    """Return dtype and shape of an array node."""
    entry = builder.memory(node, name).entry
    return (node[3], tuple(node[4])) if node[0] == "v" else (entry.dtype, entry.shape)


def _load_whole(matcher: Matcher, inner: list[Any], module: torch.nn.Module, *, name: str, live: Any) -> None:
    make = matcher.fresh(inner, name)
    if make is None or not stays_torch(matcher, inner, name):
        return
    nested = any(isinstance(item, list) and item[0] in MAPPINGS for item in inner[1][1::2])

    def state() -> Any:
        if not nested or inner[0] == "o":
            return make()
        named = ((undotted(key), matcher.builder.build(item)) for key, item in leaves(inner))
        return OrderedDict(named)

    def apply(saved: Any) -> None:
        module.load_state_dict(saved, strict=set(live) <= set(saved))

    matcher.loads.append(ObjectLoad(name, module, make=state, apply=apply))
