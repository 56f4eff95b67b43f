"""Text tables: rows as Markdown, or as columns for a terminal or a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from model_checkpoint.errors import OptionInvalid

Style = Literal["markdown", "text"]


def heading(text: str, style: Style) -> str:
    """A title line.

    Example:
        >>> heading("Metrics", "markdown"), heading("Metrics", "text")
        ('## Metrics', 'METRICS')
    """
    return f"## {text}" if style == "markdown" else text.upper()


def table(rows: Sequence[Sequence[str]], style: Style) -> str:
    r"""Rows, the first as the heading.

    Example:
        >>> print(table([["metric", "last"], ["loss", "0.5"]], "text"))
        metric  last
        loss    0.5
        >>> print(table([["metric", "last"], ["a|b", "0.5"]], "markdown"))
        | metric | last |
        | --- | --- |
        | a\|b | 0.5 |
    """
    if style == "markdown":
        first, *rest = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
        return "\n".join("| " + " | ".join(row) + " |" for row in (first, ["---"] * len(first), *rest))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def check_style(style: str) -> None:
    """Refuse a style there is none of.

    Example:
        >>> check_style("text")
    """
    if style not in ("markdown", "text"):
        raise OptionInvalid(f"format must be 'markdown' or 'text', got {style!r}. Nothing was done.")


def number(value: float | None) -> str:
    """A figure, short.

    Example:
        >>> number(0.123456789), number(None), number(1e-9), number(12000.0)
        ('0.123457', '-', '1e-09', '12000')
    """
    return "-" if value is None else f"{value:.6g}"
