"""Torch wrappers: what DDP and ``torch.compile`` put around a module is no part of the names of its tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_COMPILED = "_orig_mod"
_WRAPPING = ("torch.nn.parallel.", "torch.distributed.", "accelerate.", "apex.", "deepspeed.", "fairscale.")


def bare_keys(module: torch.nn.Module, keys: Iterable[str]) -> dict[str, str]:
    """Return each key of a module's state_dict with the name it has in the bare module.

    A module of the caller's own that has a part called ``module`` keeps it: only what is known to wrap is stripped.

    Example:
        >>> wrapped = torch.nn.DataParallel(torch.nn.Linear(2, 2))
        >>> bare_keys(wrapped, wrapped.state_dict())
        {'module.weight': 'weight', 'module.bias': 'bias'}
    """
    whole = list(keys)
    lead = _lead(module)
    if not lead or not all(key.startswith(lead) for key in whole):
        lead = ""
    bare = {key: _without_compiled(key[len(lead) :]) for key in whole}
    return bare if len(set(bare.values())) == len(whole) else {key: key for key in whole}


def bare_state(module: torch.nn.Module, state: Any) -> Any:
    """Return a module's state_dict, and the versions it keeps beside, under the names of the bare module."""
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        return state
    names = bare_keys(module, state)
    if all(key == name for key, name in names.items()):
        return state
    made: Any = type(state)((names[key], value) for key, value in state.items())
    versions = getattr(state, "_metadata", None)
    if isinstance(versions, dict):
        lead = _lead(module)
        made._metadata = type(versions)((_bare_path(path, lead), value) for path, value in versions.items())
    return made


def _lead(module: torch.nn.Module) -> str:
    """Return what the wrappers around a module put before every name, the outermost first."""
    lead = ""
    while True:
        compiled = module._modules.get(_COMPILED)
        inner = compiled if compiled is not None else _wrapped(module)
        if inner is None:
            return lead
        lead += f"{_COMPILED if compiled is not None else 'module'}."
        module = inner


def _wrapped(module: torch.nn.Module) -> torch.nn.Module | None:
    known = type(module).__module__.startswith(_WRAPPING)
    return module._modules.get("module") if known else None


def _without_compiled(key: str) -> str:
    return ".".join(part for part in key.split(".") if part != _COMPILED) if _COMPILED in key else key


def _bare_path(path: str, lead: str) -> str:
    """Return the path of a module as it is without wrappers; those of the wrappers themselves are the root's."""
    return _without_compiled(f"{path}."[len(lead) :] if f"{path}.".startswith(lead) else "").rstrip(".")
