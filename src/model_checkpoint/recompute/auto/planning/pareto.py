"""Pareto: the trade of memory against time, as text, SVG or PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_WIDTH, _HEIGHT, _MARGIN = 640, 400, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoRow:
    """One budget and the time it leads to, relative to plain training; ``measured`` rows were run."""

    bytes: int
    share: float
    slowdown: float
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pareto:
    """Budgets against time; ``str()`` is a table, :meth:`save` a picture.

    Example:
        >>> row = ParetoRow(bytes=50_000_000, share=0.5, slowdown=1.1, measured=True)
        >>> print(Pareto(rows=(row,)))
              peak   share    time
         50.00 MB   50.0 %  x1.100  measured
    """

    rows: tuple[ParetoRow, ...]

    def __str__(self) -> str:
        lines = [
            f"{r.bytes / 1e6:9.2f} MB  {100 * r.share:5.1f} %  x{r.slowdown:.3f}  "
            + ("measured" if r.measured else "predicted")
            for r in self.rows
        ]
        return "\n".join(["      peak   share    time", *lines])

    def svg(self) -> str:
        """The picture as SVG text."""
        xs, ys = _scale([r.bytes / 1e6 for r in self.rows]), _scale([r.slowdown for r in self.rows])
        spots = [(_across(xs, r.bytes / 1e6), _down(ys, r.slowdown)) for r in self.rows]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        dots = [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{"#c33" if row.measured else "#36c"}"/>'
            for (x, y), row in zip(spots, self.rows, strict=True)
        ]
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans">',
                '<rect width="100%" height="100%" fill="white"/>',
                *_axes(xs, ys),
                f'<polyline points="{line}" fill="none" stroke="#36c" stroke-width="2"/>',
                *dots,
                "</svg>",
            ]
        )

    def save(self, path: str | Path) -> Path:
        """Write the picture; the suffix ``.svg`` or ``.png`` says which (PNG needs matplotlib)."""
        target = Path(path)
        if target.suffix == ".svg":
            target.write_text(self.svg())
        elif target.suffix == ".png":
            self._save_png(target)
        else:
            raise ValueError(f"{target}: suffix {target.suffix!r} is no picture, expected '.svg' or '.png'.")
        return target

    def _save_png(self, target: Path) -> None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 4.0))
        axes = figure.subplots()
        axes.step([r.bytes / 1e6 for r in self.rows], [r.slowdown for r in self.rows], where="post")
        run = [r for r in self.rows if r.measured]
        axes.plot([r.bytes / 1e6 for r in run], [r.slowdown for r in run], "o", color="#c33", label="measured peak")
        axes.set_xlabel("peak, MB")
        axes.set_ylabel("time, plain training = 1")
        axes.legend()
        figure.savefig(target)


def _scale(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if high > low else (low, low + 1.0)


def _across(scale: tuple[float, float], value: float) -> float:
    return _MARGIN + (value - scale[0]) / (scale[1] - scale[0]) * (_WIDTH - 2 * _MARGIN)


def _down(scale: tuple[float, float], value: float) -> float:
    return _HEIGHT - _MARGIN - (value - scale[0]) / (scale[1] - scale[0]) * (_HEIGHT - 2 * _MARGIN)


def _axes(xs: tuple[float, float], ys: tuple[float, float]) -> list[str]:
    """Frame, end labels and titles."""
    bottom, right = _HEIGHT - _MARGIN, _WIDTH - _MARGIN
    return [
        f'<path d="M{_MARGIN} {_MARGIN} V{bottom} H{right}" fill="none" stroke="black"/>',
        f'<text x="{_MARGIN}" y="{bottom + 20}">{xs[0]:.1f}</text>',
        f'<text x="{right}" y="{bottom + 20}" text-anchor="end">{xs[1]:.1f}</text>',
        f'<text x="{_WIDTH // 2}" y="{bottom + 40}" text-anchor="middle">peak, MB</text>',
        f'<text x="{_MARGIN - 6}" y="{bottom}" text-anchor="end">{ys[0]:.2f}</text>',
        f'<text x="{_MARGIN - 6}" y="{_MARGIN + 4}" text-anchor="end">{ys[1]:.2f}</text>',
        f'<text x="{_MARGIN}" y="{_MARGIN - 16}">time, plain training = 1</text>',
    ]
