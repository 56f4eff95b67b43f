"""Report: the counts of all trials as Markdown; its first table is the one the README shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from bench.measuring.contenders import OURS
from bench.measuring.report import grid

from proof.bit_flip import Flip
from proof.power_cut import Cut, Ending
from proof.reading import CONTENDERS, Reading

Trial = TypeVar("Trial", Cut, Flip)

_INTRO = """# Proof

Written by `make proof`, which needs Linux and root, since it mounts file systems of its own and cuts their power.
Every library is called as its documentation shows it, by the same code that `make bench` measures, and every save and
load runs in a process of its own.
"""

_POWER = """## Power cut right after a save

The save goes into an empty folder that is already durable, on a small file system of its own. The moment its call has
returned, the file system is shut down with all its unflushed state (the ioctl of ext4 and XFS), mounted again as after
a power loss, and the checkpoint is loaded. "Flushed by the caller" adds an fsync of every file and folder of the
checkpoint between the call and the cut. Without a cut, every save of this table loads after the same unmounting and
mounting; that is tried first. Some seconds later the kernel would have written most of it by itself: the trial is about
what is safe when the call returns.

- lost whole: not a file is left
- lost, torn: something is left, and it does not load
- wrong: it loads without an error, with other values
"""

_FLIPS = """## One flipped bit

One bit of one stored file is turned over, the checkpoint is loaded into live tensors, and the bit is turned back.
Half of the bits are drawn evenly from the values of the tensors, half from all other stored bytes: names, shapes,
offsets, checksums, padding. Where the values are compressed, the whole file that holds them counts as values.

- refused, named: an error of a class of the library's own, whose message names a file or a tensor
- refused: any other error, such as a KeyError for a tensor that changed its name
- died: the process crashed or hung
"""


def markdown(cuts: Sequence[Cut], flips: Sequence[Flip], machine: Mapping[str, str]) -> str:
    """The whole report."""
    day = datetime.now(UTC).date().isoformat()
    head = "; ".join([*(f"{key} {value}" for key, value in machine.items()), day])
    parts = [
        _INTRO,
        f"Tried on: {head}.\n",
        "## In short\n",
        grid(short_rows(cuts, flips)),
        "",
        _POWER,
        grid(_cut_rows(cuts)),
        "",
        _FLIPS,
        grid(_flip_rows(flips)),
    ]
    return "\n".join(parts) + "\n"


def short_rows(cuts: Sequence[Cut], flips: Sequence[Flip]) -> list[list[str]]:
    """One column per library: what it loses, and what it reads as good that is not."""
    plain, flushed = [one for one in cuts if not one.flushed], [one for one in cuts if one.flushed]
    values, rest = [one for one in flips if one.payload], [one for one in flips if not one.payload]
    return [
        ["", *(one.name for one in CONTENDERS)],
        _row("acknowledged saves lost by a power cut right after", plain, _lost),
        _row("the same, every file and folder flushed by the caller", flushed, _lost),
        _row("one flipped bit in the values: read as good", values, _believed),
        _row("one flipped bit elsewhere: read as good, with other values", rest, _believed),
        _row("flipped bits refused by an error that names file or tensor", flips, _named),
    ]


def _lost(cut: Cut) -> bool:
    return cut.ending is not Ending.KEPT


def _believed(flip: Flip) -> bool:
    return flip.reading is Reading.OTHER


def _named(flip: Flip) -> bool:
    return flip.reading is Reading.NAMED


def _row(title: str, trials: Sequence[Trial], counts: Callable[[Trial], bool]) -> list[str]:
    return [title, *(_share([counts(t) for t in trials if t.contender == one.name], one.name) for one in CONTENDERS)]


def _share(hits: Sequence[bool], name: str) -> str:
    if not hits:
        return ""
    text = f"{sum(hits)} of {len(hits)}"
    return f"**{text}**" if name == OURS.name else text


def _cut_rows(cuts: Sequence[Cut]) -> list[list[str]]:
    rows = [["library", "file system", "flushed by the caller", "saves", "kept", "lost whole", "lost, torn", "wrong"]]
    for key in dict.fromkeys((one.contender, one.disk, one.flushed) for one in cuts):
        endings = [one.ending for one in cuts if (one.contender, one.disk, one.flushed) == key]
        name, disk, flushed = key
        figures = [endings.count(ending) for ending in (Ending.KEPT, Ending.GONE, Ending.TORN, Ending.WRONG)]
        rows.append([name, disk, "yes" if flushed else "no", *map(str, (len(endings), *figures))])
    return rows


def _flip_rows(flips: Sequence[Flip]) -> list[list[str]]:
    titles = {
        Reading.NAMED: "refused, named",
        Reading.REFUSED: "refused",
        Reading.DIED: "died",
        Reading.OTHER: "read as good, other values",
        Reading.SAME: "read as good, same values",
    }
    rows = [["library", "where", "flips", *titles.values()]]
    for key in dict.fromkeys((one.contender, one.payload) for one in flips):
        readings = [one.reading for one in flips if (one.contender, one.payload) == key]
        name, payload = key
        figures = [readings.count(reading) for reading in titles]
        rows.append([name, "values" if payload else "elsewhere", *map(str, (len(readings), *figures))])
    return rows


__all__ = ["markdown", "short_rows"]
