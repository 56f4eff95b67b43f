"""JSON values: plain data as JSON that all databases take, and back without loss.

What JSON cannot say becomes an object with one key: ``{"$float": "nan"}``, ``{"$int": "..."}`` beyond 64 bits, and
``{"$dict": {...}}`` around data that look like one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from model_checkpoint.database.errors import RowRefused

_TAGS = frozenset({"$float", "$int", "$dict"})
_LARGEST = 1 << 63
_DEEPEST = 60  # MySQL ends at 100, and each tag is a level


def to_json(value: Any, where: str) -> Any:
    """Plain data as what a JSON encoder may see.

    Example:
        >>> to_json({"lr": float("inf"), "layers": (1, 2)}, "config")
        {'lr': {'$float': 'inf'}, 'layers': [1, 2]}
    """
    return _plain(value, (where,), 0)


def _plain(value: Any, path: tuple[Any, ...], depth: int) -> Any:
    """``path`` nests, and is put into words only for a refusal: most data are sound, and all of them come by here."""
    kind = value.__class__
    if kind is str and value.isascii() and "\0" not in value:
        return value
    if kind is float and isfinite(value):
        return value
    if kind is bool or value is None or (kind is int and -_LARGEST <= value < _LARGEST):
        return value
    if isinstance(value, (str, int, float)):
        return _odd(value, path)
    if depth > _DEEPEST:
        raise RowRefused(f"{_words(path)}: nested deeper than {_DEEPEST} containers. Flatten it.")
    if kind is list or isinstance(value, (list, tuple)):
        return [_plain(item, (path, i), depth + 1) for i, item in enumerate(value)]
    if kind is dict or isinstance(value, Mapping):
        plain = {_key(k, value, path): _plain(item, (path, k), depth + 1) for k, item in value.items()}
        return {"$dict": plain} if len(plain) == 1 and not _TAGS.isdisjoint(plain) else plain
    raise _refused(value, path)


def _odd(value: str | int | float, path: tuple[Any, ...]) -> Any:
    """What has a kind of its own, or what JSON cannot say as it is."""
    if isinstance(value, str):
        return as_text(value, _words(path))
    if isinstance(value, int):
        return int(value) if -_LARGEST <= value < _LARGEST else {"$int": str(value)}
    return float(value) if isfinite(value) else {"$float": str(float(value))}


def _refused(value: Any, path: tuple[Any, ...]) -> RowRefused:
    return RowRefused(
        f"{_words(path)}: the catalog holds plain data (numbers, strings, lists, dicts with string keys), "
        f"got {type(value).__qualname__}. Convert it first."
    )


def _key(key: Any, owner: Any, path: tuple[Any, ...]) -> str:
    if key.__class__ is str and key.isascii() and "\0" not in key:
        return key
    if not isinstance(key, str):
        raise _refused(owner, path)
    return as_text(key, _words(path))


def _words(path: tuple[Any, ...]) -> str:
    if len(path) == 1:
        return str(path[0])
    above, last = path
    return f"{_words(above)}[{last}]" if isinstance(last, int) else f"{_words(above)}.{last}"


def from_json(value: Any) -> Any:
    """Give back the data of :func:`to_json`; tuples come back as lists.

    Example:
        >>> from_json({"lr": {"$float": "inf"}})
        {'lr': inf}
    """
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$float": str(text), **rest} if not rest:
            return float(text)
        case {"$int": str(text), **rest} if not rest:
            return int(text)
        case {"$dict": dict(inner), **rest} if not rest:
            value = inner
    return {key: from_json(item) for key, item in value.items()}


def as_text(value: Any, where: str) -> str:
    """Text that every database keeps: no NUL, no half of a surrogate pair.

    Example:
        >>> as_text("loss", "metric name")
        'loss'
    """
    if not isinstance(value, str):
        raise RowRefused(f"{where}: must be text, got {type(value).__qualname__}.")
    if "\0" in value or not (value.isascii() or _encodes(value)):
        raise RowRefused(f"{where}: {value!r} holds a character databases do not keep (NUL, lone surrogate).")
    return str(value)


def as_words(value: Any, where: str) -> list[str]:
    """A list of words; a single string is refused, since it would fall apart into letters.

    Example:
        >>> as_words(("a", "b"), "tags")
        ['a', 'b']
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise RowRefused(f"{where}: must be a list of words, got {value!r}. Write [{value!r}].")
    return [as_text(word, where) for word in value]


def as_mapping(value: Any, where: str) -> dict[str, Any]:
    """A mapping as a dict.

    Example:
        >>> as_mapping({"lr": 0.1}, "config")
        {'lr': 0.1}
    """
    if not isinstance(value, Mapping):
        raise RowRefused(f"{where}: must be a mapping, got {type(value).__qualname__}.")
    return dict(value)


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
