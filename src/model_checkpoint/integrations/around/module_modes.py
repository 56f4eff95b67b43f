"""Module modes: how the modules that are trained were switched while a run went on, which is in none of their states.

Whether each trains or is judged, which parameters get gradients, what torch's own modules have in numbers (how much is
dropped): set back. What modules of the program count by themselves may belong to what they keep besides, so it is not.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

_DEEPEST = 8  # modules are looked for in dicts and lists
_Modes = dict[tuple[str, str], Any]  # by the path of a module or parameter, and the name there

SWITCHED = (
    "modules of the run are not as it began with, so that nobody knows whether what was switched since then "
    "(train() and eval(), requires_grad, dropout) is to be switched again: set {} yourself, or start with the modules "
    "as they were"
)


class ModuleModes:
    """The modes of all modules in objects, against those where the loop began.

    Example:
        >>> import torch
        >>> modes = ModuleModes({"model=": (model := torch.nn.Dropout(0.5))})
        >>> _, model.p = model.eval(), 0.25
        >>> taken = modes.take()
        >>> _, model.p = model.train(), 0.5
        >>> modes.set_back(taken), model.training, model.p
        ([], False, 0.25)
    """

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._objects = objects
        self._begun = _modes_in(objects)
        self._taken = self._begun

    def take(self) -> dict[str, Any]:
        """What was switched since the loop began."""
        now = self._taken = _modes_in(self._objects)
        return {
            "begun": _checksum(self._begun),
            "now": _checksum(now),
            "changed": [[*key, value] for key, value in now.items() if self._begun.get(key) != value],
        }

    def set_back(self, saved: Mapping[str, Any]) -> list[str]:
        """Switch all of it again; what is to be said of what cannot be."""
        now = _modes_in(self._objects)
        changed = {(path, name): value for path, name, value in saved["changed"]}
        if _checksum(self._taken) == saved["now"]:  # the same program goes on
            self._switch(self._taken)
        elif _checksum(now) == saved["begun"]:
            self._switch(now | changed)
        elif _checksum(now) != saved["now"]:
            told = ", ".join(f"`{path}`.{name}" for path, name in list(changed)[:3]) or "them"
            return [SWITCHED.format(told)]
        return []

    def _switch(self, wanted: _Modes) -> None:
        for path, one in _owners(self._objects):
            for name in (*_names_of(one), "requires_grad"):
                value = wanted.get((path, name))
                if (path, name) in wanted and getattr(one, name) != value:
                    setattr(one, name, value)


def _modes_in(objects: Mapping[str, Any]) -> _Modes:
    modes: _Modes = {}
    torch = sys.modules.get("torch")
    for path, one in _owners(objects):
        if torch is not None and isinstance(one, torch.Tensor):
            modes[path, "requires_grad"] = one.requires_grad
        else:
            modes |= {(path, name): vars(one)[name] for name in _names_of(one)}
    return modes


def _names_of(one: Any) -> list[str]:
    """What may be switched of a module."""
    if not type(one).__module__.startswith("torch.nn.modules."):
        return ["training"] if "training" in vars(one) else []
    return [name for name, value in vars(one).items() if type(value) in (bool, int, float) and not name.startswith("_")]


def _owners(objects: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The modules and their parameters, by path."""
    if "torch" in sys.modules:
        for name, one in objects.items():
            yield from _owners_in(name.rstrip("="), one, _DEEPEST)


def _owners_in(path: str, one: Any, depth: int) -> Iterator[tuple[str, Any]]:
    torch = sys.modules["torch"]
    if isinstance(one, torch.nn.Module):
        yield from ((f"{path}.{name}" if name else path, each) for name, each in one.named_modules())
        yield from ((f"{path}.{name}", each) for name, each in one.named_parameters())
    elif isinstance(one, torch.nn.Parameter):
        yield path, one
    elif isinstance(one, (dict, list, tuple)) and depth:
        for name, each in one.items() if isinstance(one, dict) else enumerate(one):
            yield from _owners_in(f"{path}.{name}", each, depth - 1)


def _checksum(modes: _Modes) -> int:
    return zlib.crc32(repr(list(modes.items())).encode())
