"""Plain texts: arguments that are texts are taken as they are, and numbers that nobody gave.

Newer versions of Typer ask a validation library whether a text is a text, and importing that takes longer than most
verbs do. Numbers that are given, and choices, are still left to Typer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_AS_THEY_ARE = (str, bool, list[str])  # a shell gives texts, and a flag is there or not
_NUMBERS = (int, int | None)


class _TakenAsIs:
    """Stands where Typer keeps what makes a value of a text."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if param.multiple or param.nargs == -1:
            return list(value or ())
        return value


class _TakenIfLeftOut:
    """Stands there for a number: one that was left out is what the verb says, which needs no proof."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None or value.__class__ is int:
            return value
        param._runtime_param = None  # Typer makes its own now
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def take_texts_as_they_are(params: Iterable[Any]) -> None:
    """Let those of ``params`` that are texts or flags pass; older versions of Typer need no such thing.

    Example:
        >>> take_texts_as_they_are([])
    """
    for param in params:
        descriptor = getattr(param, "type_descriptor", None)
        if descriptor is None:
            continue
        if descriptor.annotation in _AS_THEY_ARE:
            param._runtime_param = _TakenAsIs()
        elif descriptor.annotation in _NUMBERS:
            param._runtime_param = _TakenIfLeftOut()
