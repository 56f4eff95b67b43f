"""Plain texts: arguments whose meaning is plain are taken at once: texts, flags, digits, and the words of a choice.

Newer versions of Typer ask a validation library whether a text is a text, and importing that takes longer than most
verbs do. Whatever is not plain, and so most likely wrong, is still left to Typer.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

_AS_THEY_ARE = (str, bool, list[str])  # a shell gives texts, and a flag is there or not
_NUMBERS = (int, int | None)
_UNSURE = object()
_LONGEST = 15  # digits


class _TakenAsIs:
    """Stands where Typer keeps what makes a value of a text."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if param.multiple or param.nargs == -1:
            return list(value or ())
        return value


class _TakenIfPlain:
    """Stands there for a number or a choice: one that was left out is what the verb says, which needs no proof."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        found = _plain_meaning(value, param.type_descriptor)
        if found is not _UNSURE:
            return found
        param._runtime_param = None  # Typer makes its own now
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _plain_meaning(value: Any, descriptor: Any) -> Any:
    if value is None or isinstance(value, (int, Enum)):
        return value
    if _is_choice(descriptor.annotation):
        return {member.value: member for member in descriptor.annotation}.get(value, _UNSURE)
    if not (value.isascii() and value.isdigit() and len(value) <= _LONGEST):
        return _UNSURE
    number, least, most = int(value), descriptor.parameter_info.min, descriptor.parameter_info.max
    is_within = (least is None or number >= least) and (most is None or number <= most)
    return number if is_within else _UNSURE


def _is_choice(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Enum)


def take_texts_as_they_are(params: Iterable[Any]) -> None:
    """Let those of ``params`` that are plain pass; older versions of Typer need no such thing.

    Example:
        >>> take_texts_as_they_are([])
    """
    for param in params:
        descriptor = getattr(param, "type_descriptor", None)
        if descriptor is None:
            continue
        if descriptor.annotation in _AS_THEY_ARE:
            param._runtime_param = _TakenAsIs()
        elif descriptor.annotation in _NUMBERS or _is_choice(descriptor.annotation):
            param._runtime_param = _TakenIfPlain()
