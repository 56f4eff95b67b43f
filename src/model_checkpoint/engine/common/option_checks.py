"""Option checks: the one place that says which values the options of the front door take; a wrong one is refused.

A word such as ``"yes"`` would otherwise count as true here and as false there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import index
from typing import Any

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.manifest import PARITY_SUMS
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
    "cast": _YES_OR_NO,
    "dry_run": _YES_OR_NO,
    "verify": tuple(mode.value for mode in Verify),
    "format": tuple(CheckpointFormat),
    "compression": tuple(CompressionLevel),
    "progress": (None, *_YES_OR_NO),
    "parity": (None, *PARITY_SUMS),
    "reshard": ("parallel", "simple"),
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


def as_step(step: Any) -> int:
    """Return a training step as an int; whole numbers of any library are steps, truth values are not.

    Example:
        >>> as_step(100)
        100
    """
    try:
        number = -1 if isinstance(step, bool) else index(step)
    except TypeError:
        number = -1
    if number < 0:
        raise OptionInvalid(f"step must be a whole number of 0 or more, got {step!r}. Nothing was done.")
    return number


def require_words(**options: object) -> None:
    """Raise :class:`OptionInvalid` for the first option that is neither a text nor left out."""
    for name, value in options.items():
        if value is not None and not isinstance(value, str):
            raise OptionInvalid(f"{name} must be a text, got {value!r}. Nothing was done.")


def require_selection(*, parts: object, rename: object, types: object) -> None:
    """Refuse what selects, renames or allows nothing that a tree could have.

    Example:
        >>> require_selection(parts=["model"], rename={"net": "model"}, types=[])
        >>> require_selection(parts=3, rename=None, types=())
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: parts must be a text or a list of texts, got 3. Nothing was done.
    """
    if parts is not None and not _all(parts, str):  # a text is a list of texts, too
        raise OptionInvalid(f"parts must be a text or a list of texts, got {parts!r}. Nothing was done.")
    pairs = [*rename.keys(), *rename.values()] if isinstance(rename, Mapping) else None
    if rename is not None and not callable(rename) and not _all(pairs, str):
        raise OptionInvalid(f"rename must map texts to texts, or be a function of a text, got {rename!r}.")
    if not _all(types, type):
        raise OptionInvalid(f"types must be a list of classes, got {types!r}. Nothing was done.")


def _all(values: object, kind: type) -> bool:
    return isinstance(values, Collection) and all(isinstance(value, kind) for value in values)


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
