"""Render repair: what `mckpt repair` did, or could do."""

from __future__ import annotations

from model_checkpoint.cli.render import as_json_text, clean, clean_lines, console, folding_table, size
from model_checkpoint.engine.repairing.repair import RepairReport


def repair(found: RepairReport, *, as_json: bool) -> None:
    """The verdict of `mckpt repair`, and each file that came back or is lost."""
    if as_json:
        print(as_json_text(found))
        return
    if found.repaired:
        table = folding_table("checkpoint", "file", "size", "rebuilt from", "also in")
        for one in found.repaired:
            origins = ", ".join(f"{origin} ({count})" for origin, count in one.sources.items())
            table.add_row(
                clean(one.checkpoint), clean(one.file), size(one.nbytes), origins, clean(", ".join(one.shared_with))
            )
        console.print(table)
    for lost in found.lost:
        chunk = "" if lost.chunk is None else f", chunk {lost.chunk}"
        tensors = f"; tensors {', '.join(lost.tensors)}" if lost.tensors else ""
        text = f"lost: {lost.checkpoint}: {lost.file}{chunk}: {lost.reason}{tensors}"
        console.print(f"[red]{clean_lines(text)}[/]", soft_wrap=True)
    for damage in found.unread:
        console.print(f"[yellow]not readable here: {clean_lines(damage.problem)}[/]", soft_wrap=True)
    verb = "could be repaired" if found.dry_run else "repaired"
    console.print(
        f"{len(found.examined)} examined, {len(found.repaired)} files {verb}, {len(found.lost)} chunks lost, "
        f"{len(found.mirrored)} copied to the mirror"
    )
