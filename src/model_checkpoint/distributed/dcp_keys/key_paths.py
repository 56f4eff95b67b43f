"""Key paths: dotted keys as DCP makes them of a nested state, and the nested state they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from model_checkpoint.errors import StructureMismatch

KeyPath = tuple[str | int, ...]


def path_of_key(fqn: str, paths: Mapping[str, Any] | None) -> KeyPath:
    """Where in the state a key lies; a planner that does not flatten has no paths, and keys of the top alone."""
    path = (paths or {}).get(fqn, (fqn,))
    return tuple(part if type(part) is int else str(part) for part in path)


def nested(items: Iterable[tuple[KeyPath, Any]]) -> dict[str, Any]:
    """Build the state that keys were made of; a place in a list that no key has is None, as DCP itself leaves it.

    Example:
        >>> nested([(("model", "w"), 1), (("steps", 1), 5)])
        {'model': {'w': 1}, 'steps': [None, 5]}
    """
    top: dict[str, Any] = {}
    for path, value in items:
        here: Any = top
        for part, below in pairwise(path):
            here = _entered(here, part, path, [] if type(below) is int else {})
        _put(here, path[-1], path, value)
    return top


def _entered(here: Any, part: str | int, path: Sequence[str | int], fresh: Any) -> Any:
    """What lies under ``part``, made if nothing does."""
    found = here.get(part) if isinstance(here, dict) else here[part] if _has(here, part, path) else None
    if found is None:
        _put(here, part, path, fresh)
        return fresh
    if type(found) is not type(fresh):
        raise _torn(path)
    return found


def _has(here: Any, part: str | int, path: Sequence[str | int]) -> bool:
    if not isinstance(here, list) or type(part) is not int:
        raise _torn(path)
    return part < len(here)


def _put(here: Any, part: str | int, path: Sequence[str | int], value: Any) -> None:
    if isinstance(here, dict) and isinstance(part, str):
        here[part] = value
        return
    if not isinstance(here, list) or type(part) is not int:
        raise _torn(path)
    here.extend([None] * (part + 1 - len(here)))
    here[part] = value


def _torn(path: Sequence[str | int]) -> StructureMismatch:
    return StructureMismatch(
        f"{'.'.join(map(str, path))}: another key makes something else of a container on its way. Let the planner give "
        "each key the path it has in the state."
    )
