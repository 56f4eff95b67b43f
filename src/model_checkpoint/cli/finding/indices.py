"""Indices: part of a tensor as people write it in Python, read without running anything."""

from __future__ import annotations

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.plan import Index


def parse_index(text: str) -> Index:
    """Read ``0:2,-1`` and its kin.

    Example:
        >>> parse_index("0:2, -1, ..."), parse_index("::2")
        ((slice(0, 2, None), -1, Ellipsis), (slice(None, None, 2),))
    """
    try:
        return ... if text.strip() == "..." else tuple(_axis(part.strip()) for part in text.split(","))
    except ValueError:
        raise OptionInvalid(
            f"--index {text!r} is no index. Write numbers, ranges and ... with commas, e.g. 0:2,-1."
        ) from None


def _axis(text: str) -> int | slice:
    if text == "...":
        return ...  # type: ignore[return-value]  # one entry of an index, too
    if ":" not in text:
        return int(text)
    bounds = [int(bound) if bound.strip() else None for bound in text.split(":")]
    if len(bounds) > 3:
        raise ValueError(text)
    return slice(*bounds)
