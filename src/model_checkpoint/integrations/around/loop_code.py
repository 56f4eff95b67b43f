"""Loop code: which names the bodies of a loop use, and which of them they make anew.

A name that every body binds before it reads it means nothing to the next one. That is read off the code of the
function in which the loop stands, so nothing is watched while it runs.
"""

from __future__ import annotations

import dis
import re
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

_USES = re.compile(r"(LOAD|STORE)_(?:FAST|DEREF|NAME|GLOBAL|CLOSURE|CLASSDEREF)")


class Used(NamedTuple):
    """What the bodies of a loop use of what was there before."""

    names: tuple[str, ...] = ()
    attributes: frozenset[str] = frozenset()  # of anything

    def __bool__(self) -> bool:
        return bool(self.names)


def loop_around(code: CodeType, at: int) -> tuple[int, int] | None:
    """From where to where in ``code`` the outermost loop reaches that ``at`` is in.

    Example:
        >>> def go(run):
        ...     for batch in run: print(batch)
        >>> loop_around(go.__code__, 0) is None
        True
    """
    loops = [(end, start) for start, end in _jumps_back(code) if end <= at <= start]
    return (min(end for end, _ in loops), max(start for _, start in loops)) if loops else None


@lru_cache(maxsize=256)
def _jumps_back(code: CodeType) -> tuple[tuple[int, int], ...]:
    jumps = ((one.offset, one.argval) for one in dis.get_instructions(code) if one.opcode in _JUMPS)
    return tuple((offset, target) for offset, target in jumps if target < offset)


_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


@lru_cache(maxsize=256)
def used_in_loop(code: CodeType, at: int) -> Used:
    """What is used by the bodies of the loop that ``at`` is in; without a loop, by all of the code.

    Example:
        >>> def go(run, noise):
        ...     for batch in run:
        ...         loss = batch * noise.random()
        ...         print(loss)
        >>> used_in_loop(go.__code__, 0).names
        ('run', 'noise', 'print')
    """
    span = loop_around(code, at) or (0, len(code.co_code))
    made: set[str] = set()
    names: dict[str, None] = {}
    attributes: set[str] = set()
    passed_over = 0  # up to here, code may have been jumped over
    for one in dis.get_instructions(code):
        if not span[0] <= one.offset <= span[1]:
            continue
        if one.opcode in _JUMPS and one.opname != "FOR_ITER" and one.argval <= span[1]:
            passed_over = max(passed_over, one.argval)
        if isinstance(one.argval, CodeType):  # a function made in the body
            inner = used_in_loop(one.argval, -1)
            names |= dict.fromkeys(name for name in inner.names if name not in (*made, *one.argval.co_varnames))
            attributes |= inner.attributes
        elif one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.add(one.argval)
        for use, name in zip(_USES.findall(one.opname), _each(one.argval), strict=False):
            if use == "LOAD" and name not in made:
                names[name] = None
            elif use == "STORE" and one.offset >= passed_over and name not in names:
                made.add(name)
    return Used(tuple(names), frozenset(attributes))


def _each(names: object) -> tuple[str, ...]:
    """The names of one instruction, of which some have two."""
    return names if isinstance(names, tuple) else (str(names),)
