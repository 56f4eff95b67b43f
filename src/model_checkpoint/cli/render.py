"""Render: tables for people, JSON for programs. Control characters in names never reach the terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from shlex import quote
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from model_checkpoint.cli.runs import RunLine
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.reading.diff import Diff
from model_checkpoint.engine.reading.export import Exported
from model_checkpoint.engine.reading.verify import Health
from model_checkpoint.engine.root.describe import Description
from model_checkpoint.engine.root.shared_files import stored_bytes
from model_checkpoint.storage.contract.store import Swept, Trashed

if TYPE_CHECKING:  # brings the database, which most verbs do without
    from model_checkpoint.checkpoint.catalog.reindexing import ReindexReport

_UNFOLDED = 100_000  # columns where no person looks: a line of a file or pipe is never broken or cut

_UNITS = (("hour", 3600), ("minute", 60))

console = Console(width=None if sys.stdout.isatty() else _UNFOLDED)
complaints = Console(stderr=True)


def clean(text: object) -> str:
    """Make text safe to print: no control characters, no markup."""
    return escape("".join(c if c.isprintable() else "?" for c in str(text)))


def duration(seconds: float) -> str:
    """Seconds as a person reads them, rounded up.

    Example:
        >>> duration(86_399.5), duration(3_700), duration(61), duration(0.2)
        ('24 hours', '2 hours', '2 minutes', '1 second')
    """
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds > length), ("second", 1))
    count = max(1, math.ceil(seconds / length))
    return f"{count} {unit}{'s' if count > 1 else ''}"


def size(nbytes: int) -> str:
    """Bytes as a person reads them.

    Example:
        >>> size(1_500_000_000)
        '1.50 GB'
    """
    value = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1000
    return f"{value:.2f} TB"


def as_json_text(value: object) -> str:
    """Any of our results as one JSON value."""

    def plain(item: Any) -> Any:
        if is_dataclass(item) and not isinstance(item, type):
            return asdict(item)
        if isinstance(item, datetime):
            return item.isoformat()
        if isinstance(item, Enum):
            return item.value
        return str(item)

    return json.dumps(_finite(json.loads(json.dumps(value, default=plain))), allow_nan=False)


def _finite(value: Any) -> Any:
    """Say what JSON has no number for as text: "nan", "inf", "-inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def fail(message: str) -> NoReturn:
    """Say what went wrong and leave with exit code 2."""
    complaints.print(f"[bold red]error:[/] {clean_lines(message)}", soft_wrap=True)
    sys.exit(2)


def clean_lines(text: str) -> str:
    """Like :func:`clean`, but line breaks stay."""
    return "\n".join(clean(line) for line in text.splitlines())


def listing(root: str, infos: Sequence[CheckpointInfo], *, as_json: bool) -> None:
    """The table of `mckpt ls`."""
    if as_json:
        print(as_json_text(list(infos)))
        return
    if not infos:
        console.print(f"{clean(root)}: no committed checkpoint yet.")
        return
    names = sorted({name for info in infos for name in info.metrics})
    shared, parity = any(info.shared_with for info in infos), any(info.parity for info in infos)
    marked = any(map(_marks, infos))
    table = folding_table(
        *("name", "step", "saved (UTC)", "size"),
        *["shared"] * shared,
        *["parity"] * parity,
        *map(clean, names),
        "state",
        *["marks"] * marked,
    )
    for info in infos:
        state = "[red]unusable[/]" if info.problem else "[green]committed[/]"
        if info.left_out:
            state = f"[yellow]incomplete[/], without {clean(', '.join(info.left_out))}"
        metrics = [_number(info.metrics.get(name)) for name in names]
        table.add_row(
            clean(info.prefix),
            _step(info),
            _when(info),
            size(info.size_bytes),
            *[size(info.shared_bytes)] * shared,
            *[_parity(info)] * parity,
            *metrics,
            state,
            *([_marks(info)] if marked else []),
        )
    console.print(table)
    _one_copy(root, infos)
    for info in infos:
        if info.problem:
            complaints.print(f"[red]{clean_lines(info.problem)}[/]", soft_wrap=True)


def _marks(info: CheckpointInfo) -> str:
    """Its pin and tags, and whether there is a note."""
    words = ["pinned"] if info.pinned else []
    return ", ".join([*words, *map(clean, info.tags), *(["(note)"] if info.note else [])])


def runs(found: Sequence[RunLine], *, as_json: bool) -> None:
    """The table of `mckpt ls` on a folder of runs."""
    if as_json:
        print(as_json_text(list(found)))
        return
    table = folding_table("run", "checkpoints", "newest", "saved (UTC)", "size of it", "metrics")
    for line in found:
        newest = line.newest
        metrics = ", ".join(f"{clean(name)}={_number(value)}" for name, value in newest.metrics.items())
        table.add_row(
            clean(line.root), str(line.checkpoints), _step(newest), _when(newest), size(newest.size_bytes), metrics
        )
    console.print(table)


def _parity(info: CheckpointInfo) -> str:
    return clean(info.parity) if info.protected or not info.parity else f"[yellow]{clean(info.parity)}, missing[/]"


def _when(info: CheckpointInfo) -> str:
    return info.timestamp.strftime("%Y-%m-%d %H:%M:%S") if info.timestamp else "?"


def _one_copy(root: str, infos: Sequence[CheckpointInfo]) -> None:
    """Say which checkpoints are damaged together, and what all take in truth."""
    sharing = [info for info in infos if info.shared_with]
    if sharing:
        total = sum(info.size_bytes for info in infos)
        console.print(
            f"{len(sharing)} of {len(infos)} share files, of which there is one copy: {size(total)} in all, "
            f"{size(stored_bytes(root))} on the medium. Save without incremental=True for a second copy.",
            soft_wrap=True,
        )


def folding_table(*columns: str) -> Table:
    """A table whose cells are folded rather than cut when the terminal is too narrow."""
    return Table(*(Column(title, overflow="fold") for title in columns))


def _step(info: CheckpointInfo) -> str:
    return "-" if info.step is None else str(info.step)


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else clean(value)


def _copies(info: CheckpointInfo) -> None:
    """What there is of a checkpoint besides its files, and what of those is not its own."""
    for title, text in (("parity", _parity(info)), ("mirror", clean(info.mirror))):
        if text:
            console.print(f"{title}: {text}", soft_wrap=True)
    if info.shared_with:
        others = ", ".join(map(clean, info.shared_with[:8])) + (", ..." if len(info.shared_with) > 8 else "")
        console.print(f"{size(info.shared_bytes)} are one copy with {others}", soft_wrap=True)


def description(found: Description, *, tensors: bool, as_json: bool) -> None:
    """The tables of `mckpt show`."""
    if as_json:
        print(as_json_text(found))
        return
    info = found.info
    console.print(
        f"[bold]{clean(info.path)}[/]  step {_step(info)}  id {info.id[:12]}  {size(info.size_bytes)}", soft_wrap=True
    )
    _what_goes_with_it(info)
    _copies(info)
    table = folding_table("part", "kind", "class", "tensors", "size")
    for part in found.parts:
        table.add_row(clean(part.name), part.kind, clean(part.class_name), str(part.tensors), size(part.nbytes))
    console.print(table)
    if tensors:
        rows = folding_table("tensor", "dtype", "shape", "size")
        for spec in found.tensors:
            rows.add_row(clean(spec.name), clean(spec.dtype), str(list(spec.shape)), size(spec.nbytes))
        console.print(rows)
    if found.unshared:
        console.print(f"shared memory, stored apart: {', '.join(map(clean, found.unshared))}", soft_wrap=True)
    if found.lacking:
        console.print(f"[yellow]a resume would lack:[/] {', '.join(found.lacking)}")


def _what_goes_with_it(info: CheckpointInfo) -> None:
    """Metrics, metadata, marks, and others that share its files."""
    for title, values in (("metrics", info.metrics), ("metadata", info.metadata)):
        if values:
            console.print(f"{title}: " + ", ".join(f"{clean(k)}={_number(v)}" for k, v in values.items()))
    if marks := _marks(info):
        console.print(f"marks: {marks}{': ' + clean(info.note) if info.note else ''}", soft_wrap=True)
    if info.shared_with:
        others = ", ".join(map(clean, info.shared_with[:8])) + (", ..." if len(info.shared_with) > 8 else "")
        console.print(f"{size(info.shared_bytes)} are one copy with {others}", soft_wrap=True)


def health(found: Sequence[Health], *, as_json: bool) -> None:
    """The verdict of `mckpt verify`."""
    if as_json:
        print(as_json_text([{"ok": h.ok, **asdict(h)} for h in found]))
        return
    table = folding_table("name", "step", "read", "verdict")
    for h in found:
        table.add_row(clean(h.info.prefix), _step(h.info), size(h.bytes_read), _verdict(h))
    console.print(table)
    for h in found:
        for damage in (*h.damage, *h.parity):
            console.print(f"[red]{clean(h.info.prefix)}[/]: {clean_lines(damage.problem)}", soft_wrap=True)


def _verdict(found: Health) -> str:
    if found.ok:
        return "[green]healthy[/], [yellow]parity is not[/]" if found.parity else "[green]healthy[/]"
    proven = sum(not damage.unread for damage in found.damage)
    return f"[red]{proven} damaged[/]" if proven else "[yellow]not readable here[/]"


def difference(found: Diff, *, as_json: bool) -> None:
    """The table of `mckpt diff`."""
    if as_json:
        print(as_json_text(found))
        return
    table = folding_table("tensor", "change", "dtype and shape", "max", "mean")
    for name in found.added:
        table.add_row(clean(name), "[green]added[/]", "", "", "")
    for name in found.removed:
        table.add_row(clean(name), "[red]removed[/]", "", "", "")
    for change in found.changed:
        figures = (_number(change.max_change), _number(change.mean_change))
        kind = change.before if change.before == change.after else f"{change.before} -> {change.after}"
        table.add_row(clean(change.name), "changed", clean(kind), *figures)
    if table.row_count:
        console.print(table)
    if found.values:
        console.print(_value_table(found))
    counts = f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} changed"
    plain = f"; {len(found.values)} plain values differ" if found.values else ""
    console.print(f"{counts}, {found.unchanged} unchanged{plain}")


def _value_table(found: Diff) -> Table:
    table = folding_table("value", "before", "after")
    for change in found.values:
        sides = ("-" if side is None else clean(side) for side in (change.before, change.after))
        table.add_row(clean(change.name), *sides)
    return table


def leaf(value: Any, *, as_json: bool) -> None:
    """The value that `mckpt cat` was asked for."""
    if isinstance(value, str):
        print(as_json_text(value) if as_json else clean_lines(value))
    elif as_json:
        print(as_json_text({"dtype": str(value.dtype), "shape": list(value.shape), "values": value.tolist()}))
    else:
        console.print(f"{clean(value.dtype)} {list(value.shape)}")
        console.print(clean_lines(str(value)), soft_wrap=True, highlight=False)


def exported(done: Exported, *, as_json: bool) -> None:
    """What `mckpt export` wrote."""
    if as_json:
        print(as_json_text(done))
        return
    console.print(f"{done.tensors} tensors, {size(done.nbytes)}: {clean(', '.join(done.files))}", soft_wrap=True)


def removed(infos: Sequence[CheckpointInfo], *, as_json: bool) -> None:
    """One line on each checkpoint that `mckpt rm` put into the trash."""
    if as_json:
        print(as_json_text(list(infos)))
        return
    for info in infos:
        root = info.path.removesuffix(f"/checkpoints/{info.prefix}")
        undo = f"`mckpt undo {quote(f'{root}@{info.prefix}')}`"
        console.print(f"{clean(info.path)}: moved to the trash; {clean(undo)} brings it back", soft_wrap=True)


def moved(info: CheckpointInfo, what: str, *, as_json: bool) -> None:
    """One line on a checkpoint that came back."""
    if as_json:
        print(as_json_text(info))
        return
    console.print(f"{clean(info.path)}: {clean(what)}", soft_wrap=True)


def trashed(found: Sequence[Trashed], *, as_json: bool) -> None:
    """The table of `mckpt trash`."""
    if as_json:
        print(as_json_text(list(found)))
        return
    table = folding_table("name", "deleted (UTC)", "size")
    for item in found:
        when = datetime.fromtimestamp(item.deleted, UTC).strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(clean(item.name), when, size(item.nbytes))
    console.print(table if table.row_count else "The trash is empty.")


def swept(found: Swept, *, dry_run: bool, as_json: bool) -> None:
    """What `mckpt gc` did, or would do."""
    if as_json:
        print(as_json_text(found))
        return
    verb, gone = "would remove" if dry_run else "removed", f"{len(found.trashed)} old deletions ({size(found.nbytes)})"
    console.print(f"{verb} {len(found.attempts)} dead attempts and {gone}; left {len(found.alive)} that may be alive")
    deletions = [left.seconds for left in found.waiting[len(found.alive) :] if left.seconds is not None]
    attempts = [left.seconds for left in found.waiting[: len(found.alive)] if left.seconds is not None]
    for what, seconds in (("attempts", attempts), ("deletions", deletions)):
        if seconds:
            console.print(
                f"{len(seconds)} {what} wait for the end of their grace, the next for {duration(min(seconds))}"
            )


def reindexed(report: ReindexReport, *, as_json: bool) -> None:
    """What `mckpt reindex` found."""
    if as_json:
        print(as_json_text(report))
        return
    console.print(
        f"recorded {report.checkpoints} checkpoints of {report.runs} runs in {clean(report.root)}; "
        f"{report.gone} rows had no folder any more"
    )
    for name, why in report.unreadable:
        console.print(f"[red]unreadable[/red] {clean(name)}: {clean(why)}")
