"""Carried values: what bodies hand on to the next one in names of the program, which no checkpoint has.

A local of a function cannot be set by anybody else. So what changed since the loop began is taken down as a checksum,
and named where a resumed loop begins with something else.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePath
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from model_checkpoint.integrations.around.loop_code import globals_set
from model_checkpoint.integrations.feeding.data_content import content_of
from model_checkpoint.integrations.feeding.generators.held_generators import is_own, is_own_class

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
CONTAINERS = (list, dict, tuple, set, deque)
_MOST_BYTES = 1 << 16
_MOST_TOLD = 40
_DEEPEST = 8
_STATEFUL = ("torch.optim.", "torch.amp.", "torch.cuda.amp.")  # of whose states nothing is made that was not there

PLAIN = "`{}` was {} when it was saved, is {}"
HELD = "`{}` is not what it was when it was saved"
CURE = ", and no checkpoint has it: keep it in an object of the run, or let it follow from run.step"
NOT_GIVEN = "`{}` changed while the run went on, and the run was not given it: pass it to mc.Run too"

Taken = dict[str, tuple[int, str]]  # a checksum, and how it is told


class CarriedValues:
    """What the names of a loop stand for, against where it began.

    Example:
        >>> carried = CarriedValues({}, {"phase": 0, "count": [1]})
        >>> taken = carried.changed({"phase": 3, "count": [1]})
        >>> taken
        {'phase': [..., '3']}
        >>> CarriedValues({}, {"phase": 0}).differences(taken)[0][:44]
        '`phase` was 3 when it was saved, is 0, and n'
    """

    def __init__(self, objects: Mapping[str, Any], names: Mapping[str, Any]) -> None:
        self._clock = time.perf_counter()
        self._given = {id(one) for one in _known_in(objects.values())}
        self._begun = self._take(names)

    def changed(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """What is not as it was where the loop began."""
        now = self._take({name: value for name, value in names.items() if not self._is_time(value)})
        return {name: list(one) for name, one in now.items() if self._begun.get(name, one) != one}

    def differences(self, saved: Mapping[str, Any]) -> list[str]:
        """What is to be said of what a resumed loop begins with, against what was saved."""
        reasons = []
        for name, (checksum, told) in saved.items():
            here = self._begun.get(name)
            if here is None or here[0] == checksum:
                continue
            if told.startswith("<"):
                reasons.append(NOT_GIVEN.format(name))
            else:
                reasons.append((PLAIN.format(name, told, here[1]) if told and here[1] else HELD.format(name)) + CURE)
        return reasons

    def _is_time(self, value: Any) -> bool:
        """Whether it is what a clock said since the loop began."""
        return isinstance(value, float) and (
            self._clock <= value <= time.perf_counter() or 0 <= time.time() - value < time.perf_counter() - self._clock
        )

    def _take(self, names: Mapping[str, Any]) -> Taken:
        found: Taken = {}
        for name, value in names.items():
            for path, one in _parts_of(name, value):
                if id(one) not in self._given and (content := self._content_of(one)) is not None:
                    found[path] = content_of(content, most=_MOST_BYTES, files=0), _told(one)
        return found

    def _content_of(self, one: Any) -> Any:
        """What tells whether it changed; None if that is nothing to be looked at."""
        if is_value(one):
            return [one]
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(one, torch.nn.Module):
            return [each for each in (*one.parameters(), *one.buffers()) if id(each) not in self._given] or None
        return one.state_dict() if type(one).__module__.startswith(_STATEFUL) and hasattr(one, "state_dict") else None


def _parts_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a name stands for; of an object of the program, what it has in attributes, of a function what it binds."""
    yield name, value
    function = value.__func__ if isinstance(value, MethodType) else value
    if isinstance(function, FunctionType) and is_own(function.__globals__):
        for inner, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # not filled yet
                yield f"{name}: {inner}", cell.cell_contents
        for inner in globals_set(function.__code__):
            yield f"{name}: {inner}", function.__globals__.get(inner)
    elif is_own_class(type(value)) and not _is_module(value):
        for inner, one in getattr(value, "__dict__", {}).items():
            if not isinstance(one, CONTAINERS):
                yield f"{name}.{inner}", one


def is_value(one: Any) -> bool:
    """Whether it is plain, or an array, or holds nothing else."""
    if isinstance(one, (*_PLAIN, np.ndarray, np.generic, PurePath)):
        return True
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(one, torch.Tensor):
        return True
    if not isinstance(one, CONTAINERS) or hasattr(one, "__dict__"):
        return False
    items: Iterable[Any] = one.values() if isinstance(one, dict) else one
    return all(is_value(each) for each, _ in zip(items, range(_MOST_TOLD), strict=False))


def _is_module(one: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(one, torch.nn.Module)


def _told(one: Any) -> str:
    if isinstance(one, _PLAIN) and len(told := repr(one)) < _MOST_TOLD:
        return told
    return "" if is_value(one) else f"<{type(one).__name__}>"


def _known_in(objects: Iterable[Any], depth: int = _DEEPEST) -> Iterator[Any]:
    """What the run saves, and what is part of it."""
    for one in objects:
        if isinstance(one, _PLAIN):
            continue
        yield one
        if _is_module(one):
            yield from (*one.modules(), *one.parameters())
            for each in one.modules():
                yield from (
                    kept for name, kept in each._buffers.items() if name not in each._non_persistent_buffers_set
                )
        elif isinstance(one, (dict, list, tuple)) and depth:
            yield from _known_in(one.values() if isinstance(one, dict) else one, depth - 1)
        elif depth and is_own_class(type(one)):
            yield from _known_in(getattr(one, "__dict__", {}).values(), depth - 1)


def only_read(names: Mapping[str, Any], read: Collection[str]) -> dict[str, Any]:
    """Without containers that bodies only add to, such as a list of losses."""
    return {name: one for name, one in names.items() if name in read or not isinstance(one, CONTAINERS)}
