"""Terminal: what is safe to print, and where it goes. rich is imported by who prints tables or styles, else not."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDE = 100  # columns
_UNFOLDED = 100_000  # columns where no person looks: a line of a file or pipe is never broken or cut


def harmless(text: object) -> str:
    """Text without control characters, so that no name drives the terminal or turns the line around.

    Example:
        >>> harmless("red" + chr(27) + "[31m" + chr(0x202e) + "x" + chr(10))
        'red?[31m?x?'
    """
    return "".join(c if c.isprintable() else "?" for c in str(text))


def harmless_lines(text: str) -> str:
    """Like :func:`harmless`, but line breaks stay."""
    return "\n".join(map(harmless, text.splitlines()))


def clean(text: object) -> str:
    """Harmless text as rich takes it: brackets in names are no markup."""
    shown = harmless(text)
    if not _could_be_markup(shown):
        return shown
    from rich.markup import escape

    return escape(shown)


def _could_be_markup(text: str) -> bool:
    return "[" in text or text.endswith("\\")


def clean_lines(text: str) -> str:
    """Like :func:`clean`, but line breaks stay."""
    return "\n".join(clean(line) for line in text.splitlines())


@cache
def _console(columns: int | None) -> Console:
    from rich.console import Console

    return Console(width=columns, highlight=False, emoji=False)  # a name such as ":bug:" is shown as it is


def console() -> Console:
    """Where answers go: as wide as the terminal, or as wide as it takes."""
    return _console(None if sys.stdout.isatty() else _UNFOLDED)


def say(text: str, *, markup: bool = True) -> None:
    """Print lines of text, cleaned before; long ones are left to the terminal to fold, so that they can be copied."""
    if markup and _could_be_markup(text):
        console().print(text, soft_wrap=True)
    else:
        print(text)


def table_of(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table whose cells are folded rather than cut on a narrow terminal; ``right`` columns hold numbers."""
    from rich import box
    from rich.table import Column, Table

    sides = ("right" if title in right else "left" for title in columns)
    made = [Column(title, overflow="fold", justify=side) for title, side in zip(columns, sides, strict=True)]  # type: ignore[arg-type]
    return Table(*made, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def lay(table: Table) -> None:
    """Print a table, and room below it."""
    console().print(table)
    console().print()


def width() -> int:
    """Columns there are to draw in; a chart in a file is as wide as one on a usual terminal."""
    return min(console().width, 120) if sys.stdout.isatty() else 80


def is_wide() -> bool:
    """Whether there is room for what is good to know beside what one must."""
    return console().width >= _WIDE


def _coloured(word: str, code: str) -> str:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stderr.isatty()
    return word if plain else f"\x1b[{code}m{word}\x1b[0m"


def complain(message: str) -> None:
    """Say on the error stream what went wrong."""
    print(f"{_coloured('error:', '1;31')} {harmless_lines(message)}", file=sys.stderr)


def remark(message: str) -> None:
    """Say on the error stream what somebody should know."""
    print(f"{_coloured('note:', '33')} {harmless_lines(message)}", file=sys.stderr)
