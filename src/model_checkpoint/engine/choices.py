"""Choices: the one place that says which values the options of the front door take; a wrong one is refused by name.

A word such as ``"yes"`` would otherwise count as true here and as false there.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.options import CheckpointFormat, CompressionLevel, Verify

_YES_OR_NO = (True, False)
_KNOWN: dict[str, tuple[object, ...]] = {
    "overwrite": (*_YES_OR_NO, "damaged"),
    "incremental": _YES_OR_NO,
    "lazy": _YES_OR_NO,
    "mmap": _YES_OR_NO,
    "strict": _YES_OR_NO,
    "fallback": _YES_OR_NO,
    "atomic": _YES_OR_NO,
    "verify": tuple(mode.value for mode in Verify),
    "format": tuple(CheckpointFormat),
    "compression": tuple(CompressionLevel),
    "progress": (None, *_YES_OR_NO),
}


def require(**options: object) -> None:
    """Raise :class:`OptionInvalid` for the first option that has a value it does not take.

    Example:
        >>> require(overwrite="damaged", strict=True, format="single_file")
        >>> require(overwrite="yes")
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: overwrite must be True, False or "damaged", got 'yes'. Nothing was done.
    """
    for name, value in options.items():
        known = _KNOWN[name]
        if not _takes(known, value) and not (name == "progress" and callable(value)):
            raise OptionInvalid(f"{name} must be {_words(name, known)}, got {value!r}. Nothing was done.")


def require_bytes(name: str, value: object) -> int | None:
    """Return a number of bytes as an int, None as None; raise :class:`OptionInvalid` for anything else.

    Example:
        >>> require_bytes("memory_limit", 64 << 20)
        67108864
        >>> require_bytes("memory_limit", "64M")
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: memory_limit must be None or a whole number of bytes above 0, got ...
    """
    if value is None:
        return None
    number = index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else 0
    if number <= 0:
        raise OptionInvalid(f"{name} must be None or a whole number of bytes above 0, got {value!r}. Nothing was done.")
    return number


def _takes(known: Sequence[object], value: object) -> bool:
    """Tell whether ``value`` is one of ``known``: True is not 1, and a member of an enum may be given by its value."""
    return any(type(value) is type(one) and value == one for one in known) or (
        isinstance(value, str) and value in [getattr(one, "value", None) for one in known]
    )


def _words(name: str, known: Sequence[object]) -> str:
    words = [f'"{one}"' if isinstance(one, str) else str(getattr(one, "value", one)) for one in known]
    words += ["a callable"] if name == "progress" else []
    return f"{', '.join(words[:-1])} or {words[-1]}"
