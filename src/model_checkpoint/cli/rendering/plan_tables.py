"""Plan tables: what retention keeps and drops, what a disk will hold, what is in the trash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from shlex import quote
from typing import TYPE_CHECKING

from model_checkpoint.cli.quantities import counted, duration, moment, size
from model_checkpoint.cli.rendering.json_text import print_json
from model_checkpoint.cli.rendering.terminal import clean, lay, remark, say, table_of
from model_checkpoint.storage.contract.store import Swept, Trashed

if TYPE_CHECKING:
    from model_checkpoint.checkpoint.retention.disk_forecast import DiskForecast
    from model_checkpoint.checkpoint.retention.retention_plan import Decision, RetentionPlan


def plan(root: str, found: RetentionPlan, *, dry_run: bool, at_once: bool, as_json: bool) -> None:
    """The table of `mckpt prune`: every checkpoint, what becomes of it, and why; ``at_once``: there is no grace."""
    if as_json:
        print_json(_as_value(found))
        return
    if not found.decisions:
        say(f"{clean(root)}: no checkpoint yet, so there is nothing to keep or drop")
        return
    differs = any(not one.keep and one.frees != one.candidate.nbytes for one in found.decisions)
    rows = table_of("name", "on disk", "", *["frees"] * differs, "why", right=("on disk", "frees"))
    for one in found.decisions:
        freed = "" if one.keep else size(one.frees)
        row = (clean(one.name), size(one.candidate.nbytes), _verdict(one), *[freed] * differs)
        rows.add_row(*row, clean("; ".join(one.reasons)))
    lay(rows)
    verb = "would drop" if dry_run else "dropped"
    count = len(found.dropped) if dry_run else len(found.done)
    when = "at once" if at_once else "once their grace is over"
    freed = f" ({size(found.freed_bytes)} freed {when})" if count else ""
    say(f"keeps {len(found.kept)} ({size(found.kept_bytes)}), {verb} {count}{freed}")
    for warning in found.warnings:
        remark(warning)
    if dry_run and found.dropped:
        say(f"plan {found.id}: the same command with --plan {found.id} in place of --dry-run does just this")
    elif found.done and not at_once:
        say(f"`mckpt restore {clean(quote(root))}@NAME` brings one back until its grace is over")


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
        print_json(found)
        return
    if not found.checkpoints:
        say(f"{clean(found.root)}: no checkpoint yet, so there is nothing to foresee; {_room(found)}")
        return
    each = f"each save adds {size(round(found.pace.nbytes))}"
    say(f"{clean(found.root)}: {counted(found.checkpoints, 'checkpoint')}, {size(found.held_bytes)}; {each}")
    say(_room(found))
    if found.keepers:
        say(f"{clean(', '.join(found.keepers))}: {_steady(found)}")


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
    return f"holds {counted(found.steady_checkpoints, 'checkpoint')}, {size(found.steady_bytes)}{trash}"


def trashed(root: str, found: Sequence[Trashed], *, as_json: bool) -> None:
    """The table of `mckpt trash`."""
    if as_json:
        print_json(list(found))
        return
    if not found:
        say("The trash is empty.")
        return
    table = table_of("name", "deleted (UTC)", "size", right=("size",))
    for item in found:
        table.add_row(clean(item.name), moment(item.deleted, seconds=True), size(item.nbytes))
    lay(table)
    name = clean(quote(root))
    say(f"`mckpt restore {name}@NAME` brings one back; `mckpt gc {name} --trash` frees them now")


def swept(found: Swept, *, dry_run: bool, as_json: bool) -> None:
    """What `mckpt gc` did, or would do."""
    if as_json:
        print_json(found)
        return
    verb, dead = "would remove" if dry_run else "removed", counted(len(found.attempts), "dead attempt")
    gone = f"{counted(len(found.trashed), 'old deletion')} ({size(found.nbytes)})"
    say(f"{verb} {dead} and {gone}; left {len(found.alive)} that may be alive")
    deletions = [left.seconds for left in found.waiting[len(found.alive) :] if left.seconds is not None]
    attempts = [left.seconds for left in found.waiting[: len(found.alive)] if left.seconds is not None]
    for what, seconds in (("attempt", attempts), ("deletion", deletions)):
        if seconds:
            say(f"{_waiting(len(seconds), what)} for {duration(min(seconds))}")


def _waiting(count: int, what: str) -> str:
    if count == 1:
        return f"1 {what} waits for the end of its grace,"
    return f"{counted(count, what)} wait for the end of their grace, the next"
