"""Name lists: as many names as a message can tell and a person can read, or the one that was likely meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def some_of(names: Sequence[object], most: int = 8) -> str:
    """The first names in one line, and how many more there are.

    Example:
        >>> some_of(["a", "b", "c"]), some_of(range(1000), most=2), some_of([])
        ('a, b, c', '0, 1 and 998 more', 'none')
    """
    told = ", ".join(map(str, names[:most]))
    return f"{told} and {len(names) - most} more" if len(names) > most else told or "none"


def did_you_mean(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The sentence that leads from a misspelt word to the right one, else to ``otherwise`` or to all of them.

    Example:
        >>> did_you_mean("on_eror", ["on_error", "on_init"])
        "Did you mean 'on_error'?"
        >>> did_you_mean("zzz", ["a", "b"]), did_you_mean("zzz", ["a", "b"], "Look into the list.")
        ('There are: a, b.', 'Look into the list.')
    """
    from difflib import get_close_matches  # only a mistake needs it

    words = list(known)
    near = get_close_matches(word, words, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"There are: {', '.join(words)}." if otherwise is None else otherwise
