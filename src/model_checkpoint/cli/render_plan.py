"""Render plan: what retention keeps and drops, and what a disk will hold, as tables for people or JSON."""

from __future__ import annotations

from datetime import timedelta

from model_checkpoint.checkpoint.retention.disk_forecast import DiskForecast
from model_checkpoint.checkpoint.retention.retention_plan import Decision, RetentionPlan
from model_checkpoint.cli.render import as_json_text, clean, complaints, console, folding_table, size


def plan(found: RetentionPlan, *, dry_run: bool, as_json: bool) -> None:
    """The table of `mckpt prune`: every checkpoint, what becomes of it, and why."""
    if as_json:
        print(as_json_text(_as_value(found)))
        return
    rows = folding_table("name", "step", "size", "", "why")
    for one in found.decisions:
        step = "-" if one.candidate.step is None else str(one.candidate.step)
        rows.add_row(clean(one.name), step, size(one.candidate.nbytes), _verdict(one), clean("; ".join(one.reasons)))
    console.print(rows)
    verb = "would drop" if dry_run else "dropped"
    count = len(found.dropped) if dry_run else len(found.done)
    console.print(f"keeps {len(found.kept)} ({size(found.kept_bytes)}), {verb} {count} ({size(found.freed_bytes)})")
    for warning in found.warnings:
        complaints.print(f"[yellow]note:[/] {clean(warning)}", soft_wrap=True)
    if dry_run and found.dropped:
        console.print(f"plan {found.id}: the same command with --plan {found.id} in place of --dry-run does just this")
    elif found.done:
        console.print(f"`mckpt undo {clean(found.root)}@NAME` brings one back until its grace is over", soft_wrap=True)


def _verdict(one: Decision) -> str:
    return "[green]keep[/]" if one.keep else "[red]drop[/]"


def _as_value(found: RetentionPlan) -> dict[str, object]:
    decisions = [
        {
            "name": one.name,
            "id": one.candidate.id,
            "step": one.candidate.step,
            "keep": one.keep,
            "reasons": one.reasons,
            "size_bytes": one.candidate.nbytes,
            "freed_bytes": one.frees,
        }
        for one in found.decisions
    ]
    return {
        "plan": found.id,
        "root": found.root,
        "keepers": found.keepers,
        "decisions": decisions,
        "kept_bytes": found.kept_bytes,
        "freed_bytes": found.freed_bytes,
        "done": found.done,
        "swept_bytes": found.swept_bytes,
        "warnings": found.warnings,
    }


def forecast(found: DiskForecast, *, as_json: bool) -> None:
    """The lines of `mckpt forecast`."""
    if as_json:
        print(as_json_text(found))
        return
    each = f"each save adds {size(round(found.pace.nbytes))}"
    console.print(f"{clean(found.root)}: {found.checkpoints} checkpoints, {size(found.held_bytes)}; {each}")
    console.print(_room(found))
    if found.keepers:
        console.print(f"{clean(', '.join(found.keepers))}: {_steady(found)}", soft_wrap=True)


def _room(found: DiskForecast) -> str:
    if found.free_bytes is None:
        return "the medium does not tell how much room is left"
    free = f"{size(found.free_bytes)} are free"
    if found.saves_left is None:
        return f"{free}, enough as far as can be seen"
    when = "" if found.seconds_left is None else f", in {timedelta(seconds=round(found.seconds_left))}"
    return f"[yellow]{free}: full after {found.saves_left} more saves{when}[/]"


def _steady(found: DiskForecast) -> str:
    if found.steady_bytes is None or found.steady_checkpoints is None:
        return "[yellow]grows for ever[/]"
    trash = f", and {size(found.steady_trash_bytes)} in the trash" if found.steady_trash_bytes else ""
    return f"holds {found.steady_checkpoints} checkpoints, {size(found.steady_bytes)}{trash}"
