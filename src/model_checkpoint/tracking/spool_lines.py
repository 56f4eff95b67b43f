"""Spool lines: one record as one line of text that proves itself whole.

A line is the xxh3-128 of its JSON in hex, a blank, the JSON ``[kind, payload]``, a newline. JSON escapes newlines, so a
line ends where it ends. What a kill cut off has no newline; what a disk changed has another digest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import xxhash

from model_checkpoint.tracking.errors import PayloadUnspoolable

_DIGEST = 32  # hex digits


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolLine:
    """One whole record, and the byte behind it."""

    kind: str
    payload: dict[str, Any]
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolText:
    """What a spool file says: its whole lines, where it is damaged, and where a torn tail begins."""

    lines: tuple[SpoolLine, ...]
    damaged: tuple[int, ...]  # first bytes of lines whose digest is wrong
    whole: int  # bytes up to the last newline


def encode_line(kind: str, payload: dict[str, Any]) -> bytes:
    r"""One record as a line; NaN and infinities are kept.

    Example:
        >>> encode_line("note", {"loss": float("nan")})[33:]
        b'["note",{"loss":NaN}]\n'
    """
    try:
        text = json.dumps([kind, payload], separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadUnspoolable(
            f"spool: a record of kind {kind!r} is no plain data ({error}). Hand over numbers, strings, lists and dicts."
        ) from error
    return b"%s %s\n" % (xxhash.xxh3_128_hexdigest(text).encode(), text)


def decode_lines(data: bytes) -> SpoolText:
    """Every line of a spool file, judged.

    Example:
        >>> text = decode_lines(encode_line("note", {"a": 1}) + b"torn")
        >>> [(line.kind, line.payload) for line in text.lines], text.damaged, text.whole
        ([('note', {'a': 1})], (), 50)
    """
    lines, damaged, start = [], [], 0
    while (newline := data.find(b"\n", start)) >= 0:
        record = _decode(data[start:newline])
        if record is None:
            damaged.append(start)
        else:
            lines.append(SpoolLine(kind=record[0], payload=record[1], end=newline + 1))
        start = newline + 1
    return SpoolText(lines=tuple(lines), damaged=tuple(damaged), whole=start)


def _decode(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """Kind and payload; None if the line is not what was written."""
    digest, blank, text = line[:_DIGEST], line[_DIGEST : _DIGEST + 1], line[_DIGEST + 1 :]
    if blank != b" " or xxhash.xxh3_128_hexdigest(text).encode() != digest:
        return None
    try:
        match json.loads(text):
            case [str(kind), dict(payload)]:
                return kind, payload
    except (ValueError, RecursionError):  # a line of someone else's making, digest and all
        return None
    return None
