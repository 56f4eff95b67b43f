"""Torch module state: what a live module's state_dict holds, under which names, and whether loading is mere copying."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, NamedTuple

import torch

from model_checkpoint.manifest import Node
from model_checkpoint.tree.flattening.torch_wrappers import bare_keys
from model_checkpoint.tree.nodes.names import dotted, final, strip_wrappers
from model_checkpoint.tree.nodes.walk import MAPPINGS, tag_of

_HOOKS = (
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
)
_METHODS = ("load_state_dict", "_load_from_state_dict", "state_dict", "_save_to_state_dict", "get_extra_state")
# these only fill in a counter that checkpoints of old torch versions lack
_HARMLESS = ("torch.nn.modules.batchnorm", "torch.nn.modules.instancenorm")


class StateItem(NamedTuple):
    """One item of a module's state_dict: the name a save gives it, the module's own key, and the value."""

    name: str
    key: str
    value: Any


class ModuleState:
    """What the state_dict of one live module holds, asked for once."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    @cached_property
    def _state(self) -> dict[str, Any]:
        return self._module.state_dict()

    @cached_property
    def _bare(self) -> dict[str, str]:
        return bare_keys(self._module, self._state)

    @cached_property
    def items(self) -> list[StateItem]:
        """All of it, in order."""
        return [StateItem(dotted(self._bare[key]), key, value) for key, value in self._state.items()]

    @cached_property
    def needs_its_own_load(self) -> bool:
        """Whether hooks or methods of the module or its parts do more than copy tensors."""
        return any(map(_has_its_own_load, self._module.modules()))

    @cached_property
    def extra_names(self) -> list[str]:
        """Names that stand for no tensors: extra state, or what hooks add."""
        if not self.needs_its_own_load:
            return []
        return [item.name for item in self.items if not isinstance(item.value, torch.Tensor)]

    def unwrapped(self, inner: Node) -> Node:
        """Return a saved state_dict with the names the live module has, where they differ by what wraps a module."""
        if not isinstance(inner, list) or tag_of(inner) not in MAPPINGS:
            return inner
        keys = inner[1][::2]
        live = {final(item.name) for item in self.items}
        if not all(isinstance(key, str) for key in keys) or all(final(dotted(key)) in live for key in keys):
            return inner
        bare = self._bare.values()
        by_bare = {strip_wrappers(key): key for key in bare}
        new = [key if key in bare else by_bare.get(strip_wrappers(key), key) for key in keys]
        if new == keys or len(by_bare) != len(bare) or len(set(new)) != len(new):
            return inner
        flat = [half for pair in zip(new, inner[1][1::2], strict=True) for half in pair]
        return [inner[0], flat, *inner[2:]]


def _has_its_own_load(module: torch.nn.Module) -> bool:
    hooks = [hook for kind in _HOOKS for hook in (getattr(module, kind, None) or {}).values()]
    if not all(map(_only_shards, hooks)):
        return True
    return any(
        (own := getattr(type(module), method)) is not getattr(torch.nn.Module, method)
        and own.__module__ not in _HARMLESS
        for method in _METHODS
    )


def _only_shards(hook: Any) -> bool:
    """Tell whether a hook is one by which FSDP2 has the parameters sharded before they are looked at, and no more."""
    hook = getattr(hook, "hook", hook)
    while isinstance(hook, partial):
        hook = hook.func
    return getattr(hook, "__module__", "").startswith("torch.distributed.fsdp._fully_shard")
