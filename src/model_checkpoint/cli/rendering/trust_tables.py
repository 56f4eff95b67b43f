"""Trust tables: what verify, repair, doctor and bench print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from model_checkpoint.cli.checkup.diagnosis import Diagnosis, Grade
from model_checkpoint.cli.quantities import counted, size
from model_checkpoint.cli.rendering.json_text import print_json
from model_checkpoint.cli.rendering.terminal import clean, clean_lines, lay, say, table_of

if TYPE_CHECKING:
    from model_checkpoint.cli.checkup.trial import Measured
    from model_checkpoint.engine.reading.verify import Health
    from model_checkpoint.engine.repairing.repair import RepairReport

_SIGNS = {Grade.GOOD: "[green]good[/]", Grade.NOTE: "[yellow]note[/]", Grade.BAD: "[red]bad[/]"}


def health(ref: str, found: Sequence[Health], *, as_json: bool) -> None:
    """The verdict of `mckpt verify`."""
    if as_json:
        print_json([{"ok": h.ok, **asdict(h)} for h in found])
        return
    table = table_of("name", "step", "read", "verdict", right=("step", "read"))
    for h in found:
        step = "-" if h.info.step is None else str(h.info.step)
        table.add_row(clean(h.info.prefix), step, size(h.bytes_read), _verdict(h))
    lay(table)
    for h in found:
        for damage in (*h.damage, *h.parity):
            say(f"[red]{clean(h.info.prefix)}[/]: {clean_lines(damage.problem)}")
    bad = [h for h in found if not h.ok or h.parity]
    total = size(sum(h.bytes_read for h in found))
    if not bad:
        say(f"{counted(len(found), 'checkpoint')}, {total}: every byte is as it was saved")
    else:
        say(
            f"{len(bad)} of {counted(len(found), 'checkpoint')} damaged; `mckpt repair {clean(ref)}` tries to mend them"
        )


def _verdict(found: Health) -> str:
    if found.ok:
        return "[green]healthy[/], [yellow]parity is not[/]" if found.parity else "[green]healthy[/]"
    proven = sum(not damage.unread for damage in found.damage)
    return f"[red]{proven} damaged[/]" if proven else "[yellow]not readable here[/]"


def repair(found: RepairReport, *, as_json: bool) -> None:
    """The verdict of `mckpt repair`, and each file that came back or is lost."""
    if as_json:
        print_json(found)
        return
    if found.repaired:
        table = table_of("checkpoint", "file", "size", "rebuilt from", "also in", right=("size",))
        for one in found.repaired:
            origins = ", ".join(f"{origin} ({count})" for origin, count in one.sources.items())
            shared = clean(", ".join(one.shared_with))
            table.add_row(clean(one.checkpoint), clean(one.file), size(one.nbytes), clean(origins), shared)
        lay(table)
    for lost in found.lost:
        chunk = "" if lost.chunk is None else f", chunk {lost.chunk}"
        tensors = f"; tensors {', '.join(lost.tensors)}" if lost.tensors else ""
        say(f"[red]{clean_lines(f'lost: {lost.checkpoint}: {lost.file}{chunk}: {lost.reason}{tensors}')}[/]")
    for damage in found.unread:
        say(f"[yellow]not readable here: {clean_lines(damage.problem)}[/]")
    verb = "could be repaired" if found.dry_run else "repaired"
    say(
        f"{len(found.examined)} examined, {counted(len(found.repaired), 'file')} {verb}, "
        f"{counted(len(found.lost), 'chunk')} lost, "
        f"{len(found.mirrored)} copied to the mirror"
    )


def diagnoses(found: Sequence[Diagnosis], *, as_json: bool) -> None:
    """What `mckpt doctor` found, and the cures."""
    if as_json:
        print_json(list(found))
        return
    table = table_of("", "what", "found")
    for one in found:
        cure = f"\n[bold]cure:[/] {clean_lines(one.cure)}" if one.cure else ""
        table.add_row(_SIGNS[one.grade], clean(one.topic), f"{clean_lines(one.said)}{cure}")
    lay(table)
    bad, notes = (sum(one.grade is grade for one in found) for grade in (Grade.BAD, Grade.NOTE))
    say(f"{bad} bad, {counted(notes, 'note')}, {len(found) - bad - notes} good")


def measured(found: Measured, *, as_json: bool) -> None:
    """What `mckpt bench` measured."""
    if as_json:
        print_json(found)
        return
    table = table_of(
        "operation", "seconds", "a second", "of a plain write", right=("seconds", "a second", "of a plain write")
    )
    for name, seconds in found.seconds.items():
        rate = found.size_bytes / seconds
        share = f"{found.seconds['write'] / seconds:.2f}x"
        table.add_row(name, f"{seconds:.3f}", size(rate), share)
    rounds = counted(found.rounds, "round")
    say(f"[bold]{clean(found.root)}[/]: {size(found.size_bytes)} of random numbers, median of {rounds}")
    lay(table)
    stall, durable = f"{found.stall_seconds * 1000:.1f} ms", f"{found.background_seconds:.3f} s"
    say(f"save_async holds training up for {stall}, and is durable {durable} after the call")
    say("load and verify may read from memory: what was just written is still there")
