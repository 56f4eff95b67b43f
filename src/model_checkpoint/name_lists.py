"""Name lists: as many names as a message can tell and a person can read, and how many there are besides."""

from __future__ import annotations

from collections.abc import Sequence


def some_of(names: Sequence[object], most: int = 8) -> str:
    """The first names in one line, and how many more there are.

    Example:
        >>> some_of(["a", "b", "c"]), some_of(range(1000), most=2), some_of([])
        ('a, b, c', '0, 1 and 998 more', 'none')
    """
    told = ", ".join(map(str, names[:most]))
    return f"{told} and {len(names) - most} more" if len(names) > most else told or "none"
