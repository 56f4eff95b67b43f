"""Loop code: which names the bodies of a loop use, and which of them they make anew.

A name that every body binds before it reads it means nothing to the next one. That is read off the code of the
function in which the loop stands, so nothing is watched while it runs.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from types import CodeType
from typing import NamedTuple

_ADDS = frozenset(("append", "appendleft", "extend", "add", "insert", "update"))
_USES = re.compile(r"(LOAD|STORE)_(?:FAST|DEREF|NAME|GLOBAL|CLOSURE|CLASSDEREF)")


class Used(NamedTuple):
    """What the bodies of a loop use of what was there before."""

    names: tuple[str, ...] = ()
    attributes: frozenset[str] = frozenset()  # of anything
    read: frozenset[str] = frozenset()  # the names that are not only added to


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
def used_in_loop(code: CodeType, place: int) -> Used:
    """What is used by the bodies of the loop that ``place`` is in; without a loop, by all of the code.

    Example:
        >>> def go(run, noise):
        ...     for batch in run:
        ...         loss = batch * noise.random()
        ...         print(loss)
        >>> place = next(one.offset for one in dis.get_instructions(go) if one.opname == "FOR_ITER")
        >>> used_in_loop(go.__code__, place).names
        ('noise', 'print')
    """
    loop = loop_around(code, place)
    span = loop or (0, len(code.co_code))
    made: set[str] = set()
    names: dict[str, None] = {}
    attributes: set[str] = set()
    read: set[str] = set()
    passed_over = 0  # up to here, code may have been jumped over
    inside = [one for one in dis.get_instructions(code) if span[0] <= one.offset <= span[1]]
    for at, one in enumerate(inside):
        if one.opcode in _JUMPS and one.opname != "FOR_ITER" and one.argval <= span[1]:
            passed_over = max(passed_over, one.argval)
        if isinstance(one.argval, CodeType):  # a function made in the body
            inner = used_in_loop(one.argval, -1)
            names |= dict.fromkeys(name for name in inner.names if name not in (*made, *one.argval.co_varnames))
            attributes |= inner.attributes
            read |= inner.read
        elif one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.add(one.argval)
        for use, name in zip(_USES.findall(one.opname), _each(one.argval), strict=False):
            if use == "LOAD" and name not in made:
                names[name] = None
                read |= {name} - _added_to(name, inside[at + 1 : at + 9])
            elif use == "STORE" and loop and one.offset >= passed_over and name not in names:
                made.add(name)
    return Used(tuple(names), frozenset(attributes), frozenset(read))


def _added_to(name: str, after: Sequence[dis.Instruction]) -> set[str]:
    """The name, if what follows adds to what it stands for, or to one item of that."""
    loads = list(takewhile(lambda one: one.opname.startswith("LOAD_"), after))
    adds = [one for one in loads if one.argval in _ADDS and one.opname in ("LOAD_ATTR", "LOAD_METHOD")]
    ends = after[len(loads)].opname if len(loads) < len(after) else ""
    if ends == "BINARY_SUBSCR":
        return _added_to(name, after[len(loads) + 1 :])
    return {name} if adds or (loads and ends == "STORE_SUBSCR") else set()


@lru_cache(maxsize=256)
def globals_set(code: CodeType) -> tuple[str, ...]:
    """The names of its module that a function binds."""
    return tuple({one.argval: None for one in dis.get_instructions(code) if one.opname == "STORE_GLOBAL"})


def _each(names: object) -> tuple[str, ...]:
    """The names of one instruction, of which some have two."""
    return names if isinstance(names, tuple) else (str(names),)
