"""Tally: the kill rate per room, and who lived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mutants.workshop import Fate, Site


@dataclass(frozen=True, slots=True)
class Trial:
    """One mutant that met the tests of its room."""

    room: str
    site: Site
    fate: Fate


def render(trials: Sequence[Trial], *, left: int) -> str:
    """Lines for a terminal: every mutant that lived, then a row per room; ``left`` were not tried for want of time."""
    lived = [f"  {trial.site}" for trial in trials if trial.fate is Fate.LIVED]
    lines = ["lived:", *(lived or ["  none"]), "", f"{'room':<14}{'mutants':>8}{'killed':>8}{'unsure':>8}{'rate':>7}"]
    for room in (*dict.fromkeys(trial.room for trial in trials), ""):
        fates = [trial.fate for trial in trials if room in ("", trial.room)]
        if fates:
            lines.append(_row(room or "all", fates))
    if left:
        lines.append(f"{left} more were drawn and not tried: the time was over")
    return "\n".join(lines)


def _row(title: str, fates: Sequence[Fate]) -> str:
    """The rate is among those of which we are sure."""
    killed, unsure = fates.count(Fate.KILLED), fates.count(Fate.UNSURE)
    rate = f"{killed / (len(fates) - unsure):.0%}" if unsure < len(fates) else "-"
    return f"{title:<14}{len(fates):>8}{killed:>8}{unsure:>8}{rate:>7}"


__all__ = ["Trial", "render"]
