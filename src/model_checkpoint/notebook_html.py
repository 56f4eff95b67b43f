"""Notebook HTML: how our values look in a notebook: small, escaped, and readable on light and dark alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_TABLE = "border-collapse:collapse;font-size:0.9em"
_CELL = "text-align:left;padding:0.15em 0.8em 0.15em 0;border-bottom:1px solid rgba(128,128,128,0.4);vertical-align:top"
_MOST_ROWS = 100


def html_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, remarks: Sequence[str] = ()
) -> str:
    """A title, a table, and remarks below it; whatever names say, it is text, and nothing else.

    Example:
        >>> html_table("<b>", ["name"], [["a & b"]])[:37]
        '<div><strong>&lt;b&gt;</strong><table'
    """
    every = list(rows)
    head = "".join(f'<th style="{_CELL}">{_text(column)}</th>' for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td style={chr(34)}{_CELL}{chr(34)}>{_text(cell)}</td>' for cell in row)}</tr>"
        for row in every[:_MOST_ROWS]
    )
    more = [f"and {len(every) - _MOST_ROWS} more"] if len(every) > _MOST_ROWS else []
    told = "".join(f"<div>{_text(remark)}</div>" for remark in (*more, *remarks))
    table = f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>' if every else ""
    return f"<div><strong>{_text(title)}</strong>{table}{told}</div>"


def _text(value: object) -> str:
    from html import escape  # only who shows something in a notebook pays for it

    return escape("".join(c if c.isprintable() else "?" for c in str(value)))
