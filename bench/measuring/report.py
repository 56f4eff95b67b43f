"""Report: sections as Markdown for the docs, as tables for a terminal, as JSON for scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from bench.measuring.measure import MIB, summarize
from bench.measuring.results import Section, Table, Verdict

_INTRO = """# Benchmarks

Written by `make bench`; run it on your machine, since only ratios within one run mean anything.
All contenders do the same work in every round, one after the other, in rotating order; the folder is emptied and the
disk flushed before each operation. A save counts when it is durable: what torch.save, safetensors, DCP and Orbax wrote
is flushed afterwards, files and folders (DCP flushes its files by itself, but not the folder that names them, so that a
power cut takes them: see [the proof](proof.md)). Processor seconds are of all threads of the process; peak memory is
the high-water mark of resident memory above the start, where file pages that a library maps count too. Each ratio in a
verdict is the median of the ratios within each round.
"""


def markdown(sections: Sequence[Section], machine: Mapping[str, str], *, rounds: int, scale: float) -> str:
    """The whole report."""
    day = datetime.now(UTC).date().isoformat()
    head = [*(f"{key} {value}" for key, value in machine.items()), f"{rounds} rounds", f"scale {scale:g}", day]
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    parts = [_INTRO, "Measured on: " + "; ".join(head) + ".\n", "## Targets\n", grid(_verdict_rows(verdicts))]
    for section in sections:
        parts += [f"\n## {section.title}\n", section.intro + "\n"]
        for table in section.tables:
            parts += [f"### {table.title.capitalize()}\n", grid(rows_of(table)), ""]
        if section.grid:
            parts += [grid(section.grid), ""]
        if section.text:
            parts += ["```text", section.text, "```", ""]
        parts += [f"- {key}: {value}" for key, value in section.facts.items()]
        parts += [f"- {note}" for note in section.notes]
    return "\n".join(parts).rstrip() + "\n"


def grid(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table, the first as its heading."""
    heading, *body = rows
    lines = ["| " + " | ".join(row) + " |" for row in (heading, ["---"] * len(heading), *body)]
    return "\n".join(lines)


def rows_of(table: Table) -> list[list[str]]:
    """Heading and one row per contender, the fastest median first."""
    summaries = {name: summarize(samples) for name, samples in table.samples.items()}
    rows = [["contender", "best s", "median s", "GB/s", "CPU s/GB", "peak extra MiB"]]
    for name, one in sorted(summaries.items(), key=lambda item: item[1].median):
        figures = [f"{one.best:.3f}", f"{one.median:.3f}", f"{one.speed:.2f}", f"{one.cpu_per_gb:.2f}"]
        rows.append([name, *figures, f"{one.peak / MIB:.0f}"])
    return rows


def _verdict_rows(verdicts: Sequence[Verdict]) -> list[list[str]]:
    rows = [["target", "measured", "limit", "verdict"]]
    for one in verdicts:
        bound = "at most" if one.at_most else "at least"
        measured, limit = f"{one.value:.2f}{one.unit}", f"{bound} {one.limit:g}{one.unit}"
        rows.append([one.claim, measured, limit, "PASS" if one.holds else "FAIL"])
    return rows


def as_json(sections: Sequence[Section], machine: Mapping[str, str]) -> dict[str, Any]:
    """The same figures for scripts."""
    return {
        "machine": dict(machine),
        "sections": [
            {
                "title": section.title,
                "tables": {
                    table.title: {name: [asdict(one) for one in samples] for name, samples in table.samples.items()}
                    for table in section.tables
                },
                "grid": [list(row) for row in section.grid],
                "facts": dict(section.facts),
                "notes": list(section.notes),
                "verdicts": [{**asdict(one), "holds": one.holds} for one in section.verdicts],
            }
            for section in sections
        ],
    }


def terminal(sections: Sequence[Section]) -> None:
    """Print every table and the verdicts."""
    from rich.console import Console

    console = Console()
    for section in sections:
        for table in section.tables:
            _print_grid(console, f"{section.title}: {table.title}", rows_of(table))
        if section.grid:
            _print_grid(console, section.title, section.grid)
        for key, value in section.facts.items():
            console.print(f"{key}: {value}")
        for note in section.notes:
            console.print(note)
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    _print_grid(console, "Targets", _verdict_rows(verdicts))


def _print_grid(console: Any, title: str, rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table as Grid

    grid = Grid(title=title, title_justify="left")
    for index, heading in enumerate(rows[0]):
        grid.add_column(heading, justify="left" if index == 0 else "right")
    colours = {"PASS": "[green]PASS[/]", "FAIL": "[red]FAIL[/]"}
    for row in rows[1:]:
        grid.add_row(*(colours.get(cell, cell) for cell in row))
    console.print(grid)
