"""Report: how a checkpoint and the live objects differ, said before any byte is read, and what a load passed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from model_checkpoint.notebook_html import html_table
from model_checkpoint.state import LiveSpecs, Spec

_SHOWN = 10
_COMPARED = 2_000  # nearest-name search is quadratic; beyond this it would cost more than it tells


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a load took from where, and what it left out, by leaf name."""

    checkpoint: str = ""  # where the state came from
    missing: Sequence[str] = ()  # wanted by the live objects, not in the checkpoint: left as they were
    unexpected: Sequence[str] = ()  # in the checkpoint, not wanted: not loaded
    shapes: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]] = ()  # name, saved, live
    dtypes: Sequence[tuple[str, str, str]] = ()  # name, saved, live
    casts: Sequence[tuple[str, str, str]] = ()  # name, saved dtype, live dtype, which it was cast to as cast=True asks
    suggestions: Sequence[tuple[str, str]] = ()  # missing name, nearest unexpected name
    idle_renames: Sequence[str] = ()  # names given to rename= that fit nothing
    passed_over: Sequence[tuple[str, str]] = ()  # newer checkpoints that could not be used, and why

    @property
    def fits(self) -> bool:
        """Whether there is no difference at all."""
        return not (self.missing or self.unexpected or self.clashes)

    @property
    def clashes(self) -> bool:
        """Whether a leaf of both sides differs in shape or dtype, which no setting makes loadable."""
        return bool(self.shapes or self.dtypes)

    @property
    def complete(self) -> bool:
        """Whether the load left nothing out and passed nothing over."""
        return self.fits and not self.idle_renames and not self.passed_over

    def _repr_html_(self) -> str:
        """How a notebook shows it: what was left out, and why."""
        rows = [
            *(("passed over", path, why) for path, why in self.passed_over),
            *(("missing", name, "not in the checkpoint") for name in self.missing),
            *(("unexpected", name, "not wanted") for name in self.unexpected),
            *(("shape", name, f"saved {list(saved)}, live {list(live)}") for name, saved, live in self.shapes),
            *(("dtype", name, f"saved {saved}, live {live}") for name, saved, live in self.dtypes),
            *(("cast", name, f"from {saved} to {live}") for name, saved, live in self.casts),
            *(("rename", name, "fits nothing") for name in self.idle_renames),
        ]
        verdict = "complete" if self.complete else "not all of it fits"
        return html_table(f"{self.checkpoint or 'load'}: {verdict}", ["", "leaf", ""], rows)

    def render(self) -> str:
        """Return the differences as lines of text, the longest lists cut."""
        near = dict(self.suggestions)
        lines = [
            *_lines("missing", [f"{n} (nearest: {near[n]})" if n in near else n for n in self.missing]),
            *_lines("unexpected", list(self.unexpected)),
            *_lines("shape", [f"{n}: saved {list(s)}, live {list(t)}" for n, s, t in self.shapes]),
            *_lines("dtype", [f"{n}: saved {s}, live {t}" for n, s, t in self.dtypes]),
        ]
        return "\n".join(lines)

    def tell(self) -> str:
        """Return what a load that went through did not take, as lines of text.

        Example:
            >>> print(LoadReport(checkpoint="runs/a/checkpoints/step-00000001", missing=["head.bias"]).tell())
            runs/a/checkpoints/step-00000001: loaded, but not all of it fits:
              not in the checkpoint, left as it was: head.bias
        """
        near = dict(self.suggestions)
        rows = [
            *_lines("passed over", [f"{path}: {why}" for path, why in self.passed_over]),
            *_lines(
                "not in the checkpoint, left as it was",
                [f"{n} (nearest: {near[n]})" if n in near else n for n in self.missing],
            ),
            *_lines("in the checkpoint, not loaded", list(self.unexpected)),
            *_lines("rename= has a name that fits nothing", list(self.idle_renames)),
        ]
        what = "not all of it fits" if not self.fits or self.idle_renames else "it is not the checkpoint asked for"
        return "\n".join([f"{self.checkpoint}: loaded, but {what}:", *rows])


def _lines(title: str, rows: list[str]) -> list[str]:
    more = [f"  {title}: and {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
    return [f"  {title}: {row}" for row in rows[:_SHOWN]] + more


def compare(
    saved: Sequence[Spec], live: LiveSpecs, *, unmet: Sequence[str] = (), unasked: Sequence[str] = ()
) -> LoadReport:
    """Compare leaves by name, shape and dtype; what an open prefix covers is welcome.

    ``unmet`` is missing and ``unasked`` unexpected anyway.
    """
    if not unmet and not unasked and _said(saved) == _said(live.specs):
        return LoadReport()  # the usual case, and quickly told: the same names, dtypes and shapes in the same order
    have = {spec.name: spec for spec in saved}
    want = {spec.name: spec for spec in live.specs}
    exact = {prefix for prefix in live.open_prefixes if prefix and not prefix.endswith(".")}
    below = tuple(prefix for prefix in live.open_prefixes if prefix not in exact)

    def welcome(name: str) -> bool:
        return name in exact or (bool(below) and name.startswith(below))

    missing = [*(name for name in want if name not in have and not welcome(name)), *unmet]
    unexpected = [*(name for name in have if name not in want and not welcome(name)), *unasked]
    both = [(have[name], want[name]) for name in want if name in have]
    return LoadReport(
        missing=missing,
        unexpected=unexpected,
        shapes=[(s.name, s.shape, w.shape) for s, w in both if s.shape != w.shape],
        dtypes=[(s.name, s.dtype, w.dtype) for s, w in both if s.dtype != w.dtype],
        suggestions=_nearest(missing, unexpected),
    )


def _said(specs: Sequence[Spec]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(spec.name, spec.dtype, spec.shape) for spec in specs]


def _nearest(missing: Sequence[str], unexpected: Sequence[str]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name in missing[:_SHOWN]:
        close = get_close_matches(name, unexpected[:_COMPARED], n=1, cutoff=0.5)
        pairs.extend((name, match) for match in close)
    return pairs
