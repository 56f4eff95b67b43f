"""Bash words: bash cuts words at @ and : before it asks how one goes on, and wants only what follows the cut."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout

_CUTS = ("@", ":")  # of those in COMP_WORDBREAKS, the ones that stand in references and URLs


def complete_in_bash(complete: Callable[[], None]) -> None:
    """Let ``complete``, which ends the program, see words as they were typed; print what bash has yet to add."""
    typed = os.environ.get("COMP_WORDS", "")  # a line a word; of a shell that joins them otherwise, spaces between them
    words, at, kept = joined(typed.split("\n" if "\n" in typed else " "), int(os.environ.get("COMP_CWORD") or 0))
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(at)}
    told = io.StringIO()
    try:
        with redirect_stdout(told):
            complete()
    finally:
        for line in told.getvalue().splitlines():
            print(line.removeprefix(kept))


def joined(words: Sequence[str], at: int) -> tuple[list[str], int, str]:
    """The words up to the one that is completed, which is number ``at``, put together; its number; what bash has of it.

    Example:
        >>> joined(["mckpt", "show", "runs/a", "@", "1"], 4)
        (['mckpt', 'show', 'runs/a@1'], 2, 'runs/a')
        >>> joined(["mckpt", "show", "runs/a", "@"], 3)
        (['mckpt', 'show', 'runs/a@'], 2, 'runs/a')
        >>> joined(["mckpt", "show", "runs/a", ""], 3)
        (['mckpt', 'show', 'runs/a', ''], 3, '')
    """
    whole: list[str] = []
    for word in words[: at + 1]:
        if whole and (word.startswith(_CUTS) or (word and whole[-1].endswith(_CUTS))):
            whole[-1] += word
        else:
            whole.append(word)
    last = whole[-1] if whole else ""
    cut = max(last.rfind("@"), last.rfind(":") + 1, 0)  # an @ is taken for the beginning of what follows it
    return whole, len(whole) - 1, last[:cut] if len(whole) <= at else ""
