"""Calling frames: what the names stand for that the bodies of a loop use, where the loop runs.

Frames are looked at where a loop begins and where it saves, and never kept: they would keep alive all that is in them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType, GeneratorType, ModuleType
from typing import Any, NamedTuple

from model_checkpoint.integrations.around.loop_code import Used, loop_around, used_in_loop
from model_checkpoint.integrations.feeding.generators.held_generators import is_installed, is_own

_OURS = str(Path(__file__).parents[2])


class Names(NamedTuple):
    """What the bodies of a loop use that is there already."""

    codes: tuple[CodeType, ...]  # which functions run them
    values: dict[str, Any]
    read: frozenset[str]  # the names that are not only added to


def names_around(codes: Collection[CodeType] = ()) -> Names:
    """What runs the bodies of the loop that is asked for its next batch, and what these use of what is there.

    With ``codes`` only those are looked at, wherever they are: none of them may be running.

    Example:
        >>> def go():
        ...     noise = 5
        ...     for _ in range(1): yield names_around().values, noise
        >>> found = [one for one, _ in go()]
        >>> found[0]["noise"]
        5
    """
    frames = [one for one in _frames() if one.f_code in codes] if codes else list(_looping())
    found: dict[str, Any] = {}
    read: set[str] = set()
    for frame in frames:
        used = used_in_loop(frame.f_code, frame.f_lasti)
        read |= used.read
        for name, value in _values(frame, used):
            found.setdefault(name, value)  # the innermost counts
    return Names(tuple(frame.f_code for frame in frames), found, frozenset(read))


def _frames() -> Iterator[FrameType]:
    """The frames of the program itself, from the innermost."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_of_the_program(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _looping() -> Iterator[FrameType]:
    """Those that a body runs in: up to the first with a loop, unless it is a generator, which only hands batches on."""
    for frame in _frames():
        yield frame
        hands_on = frame.f_code.co_flags & inspect.CO_GENERATOR
        if loop_around(frame.f_code, frame.f_lasti) is not None and not hands_on:
            return


def _is_of_the_program(file: str) -> bool:
    return not (file.startswith("<frozen") or is_installed(file))


def _values(frame: FrameType, used: Used) -> Iterator[tuple[str, Any]]:
    """What the names stand for in one frame, and what is used of other modules of the program."""
    inner, outer = frame.f_locals, frame.f_globals
    for name in used.names:
        value = inner.get(name, outer.get(name))
        if isinstance(value, ModuleType):
            yield from _of_module(name, vars(value), used)
        elif not _is_ours(value) and (name in inner or name in outer):
            yield name, value
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(inner, dict):
        inner.clear()  # a copy that Python would keep until the function returns, with all that is in it


def _of_module(name: str, values: Mapping[str, Any], used: Used) -> Iterator[tuple[str, Any]]:
    if is_own(values):
        yield from ((f"{name}.{one}", values[one]) for one in sorted(used.attributes) if one in values)


def _is_ours(value: Any) -> bool:
    """Whether it is a loop of this library, which is asked for a batch just now."""
    return isinstance(value, GeneratorType) and value.gi_code.co_filename.startswith(_OURS)
