"""Charts: numbers as small pictures of characters. Pure: numbers in, text out."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BLOCKS = "".join(chr(0x2581 + eighth) for eighth in range(8))
_TICK, _AXIS = chr(0x2524), chr(0x2502)
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille character, by row and column
_BRAILLE = 0x2800


def bars(counts: Sequence[int]) -> str:
    """A histogram in one line; what is there at all is seen, however little it is.

    Example:
        >>> [_BLOCKS.find(bar) for bar in bars([0, 1, 500, 1000, 500])]
        [-1, 0, 3, 7, 3]
    """
    most = max(counts, default=0)
    return "".join(" " if count == 0 else _BLOCKS[math.ceil(count * 8 / most) - 1] for count in counts)


def sparkline(values: Sequence[float], width: int = 20) -> str:
    """A series in one line, the last of each stretch where there are more values than columns; NaN is a gap.

    Example:
        >>> [_BLOCKS.find(bar) for bar in sparkline([3.0, 2.0, float("nan"), 0.0])]
        [7, 5, -1, 0]
    """
    shown = [values[min(len(values), (i + 1) * len(values) // width) - 1] for i in range(width)]
    shown = list(values) if len(values) <= width else shown
    finite = [value for value in shown if math.isfinite(value)]
    if not finite:
        return " " * len(shown)
    low, span = min(finite), max(finite) - min(finite)
    return "".join(_level(value, low, span) for value in shown)


def _level(value: float, low: float, span: float) -> str:
    if not math.isfinite(value):
        return " "
    return _BLOCKS[3] if span == 0 else _BLOCKS[min(7, int((value - low) / span * 7.999))]


def plot(xs: Sequence[float], ys: Sequence[float], *, width: int = 60, height: int = 8) -> list[str]:
    """A curve in dots of braille, with its scale at the left; points that are no numbers leave gaps.

    Example:
        >>> lines = plot([0, 1, 2, 3], [0.0, 1.0, 4.0, 9.0], width=12, height=3)
        >>> [line[0] for line in lines], lines[-1]
        (['9', ' ', '0', ' '], '  0          3')
    """
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(x) and math.isfinite(y)]
    if not points:
        return ["(nothing that is a number)"]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    grid = [[0] * width for _ in range(height)]
    columns, rows = width * 2 - 1, height * 4 - 1
    places = [
        (_scaled(x, left, right, columns), rows - _scaled(y, low, high, rows)) if math.isfinite(y) else None
        for x, y in zip(xs, ys, strict=True)
    ]
    for before, here in zip([None, *places], places, strict=False):
        if here is not None:
            _draw(grid, before or here, here)
    labels = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"] if height > 1 else [f"{high:.4g}"]
    margin = max(map(len, labels))
    lines = [
        f"{label:>{margin}} {_TICK if label else _AXIS}{''.join(chr(_BRAILLE + cell) for cell in row)}"
        for label, row in zip(labels, grid, strict=True)
    ]
    ends = f"{left:g}", f"{right:g}"
    return [*lines, f"{'':>{margin}} {ends[0]}{ends[1]:>{max(1, width - len(ends[0]))}}"]


def _scaled(value: float, low: float, high: float, most: int) -> int:
    return 0 if high == low else round((value - low) / (high - low) * most)


def _draw(grid: list[list[int]], start: tuple[int, int], end: tuple[int, int]) -> None:
    """Set the dots of a straight line."""
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    for step in range(steps + 1):
        x = round(start[0] + (end[0] - start[0]) * step / steps)
        y = round(start[1] + (end[1] - start[1]) * step / steps)
        grid[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
