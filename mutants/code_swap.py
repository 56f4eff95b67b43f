"""Code swap: a changed source put into the functions of a module that is imported already."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from types import CodeType, FunctionType

Key = tuple[str, int, bytes]


def swap(filename: str, source: bytes, changed: bytes) -> bool:
    """Give every live function of the file its changed code; False where the change lies in what an import runs."""
    old, new = (compile(one, filename, "exec", dont_inherit=True) for one in (source, changed))
    pairs: dict[Key, CodeType] = {}
    if not _pair_imported(old, new, pairs):
        return False
    live = [one for one in gc.get_objects() if type(one) is FunctionType and one.__code__.co_filename == filename]
    try:
        for function in live:
            function.__code__ = pairs.get(_key(function.__code__), function.__code__)
    except ValueError:  # it closes over other variables now
        return False
    return True


def _pair_imported(old: CodeType, new: CodeType, pairs: dict[Key, CodeType]) -> bool:
    """Pair the functions of a module or class body; False if the body itself differs."""
    ours, theirs = list(_inner(old)), list(_inner(new))
    if _body(old) != _body(new) or [one.co_qualname for one in ours] != [one.co_qualname for one in theirs]:
        return False
    for mine, its in zip(ours, theirs, strict=True):
        if not mine.co_flags & CO_OPTIMIZED:
            if not _pair_imported(mine, its, pairs):
                return False
        else:
            _pair_function(mine, its, pairs)
    return True


def _pair_function(old: CodeType, new: CodeType, pairs: dict[Key, CodeType]) -> None:
    """Pair a function and those inside it, of which an import may have made some."""
    pairs[_key(old)] = new
    ours, theirs = list(_inner(old)), list(_inner(new))
    if [one.co_qualname for one in ours] == [one.co_qualname for one in theirs]:
        for mine, its in zip(ours, theirs, strict=True):
            _pair_function(mine, its, pairs)


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (one for one in code.co_consts if isinstance(one, CodeType))


def _body(code: CodeType) -> tuple[object, ...]:
    plain = [(type(one), repr(one)) for one in code.co_consts if not isinstance(one, CodeType)]
    return code.co_code, plain, code.co_names


def _key(code: CodeType) -> Key:
    return code.co_qualname, code.co_firstlineno, code.co_code


__all__ = ["swap"]
