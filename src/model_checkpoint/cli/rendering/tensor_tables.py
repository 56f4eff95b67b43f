"""Tensor tables: tensors with their histograms, single leaves, differences, what was exported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from model_checkpoint.cli.quantities import counted, number, short, size
from model_checkpoint.cli.rendering.charts import bars
from model_checkpoint.cli.rendering.json_text import print_json
from model_checkpoint.cli.rendering.terminal import clean, clean_lines, harmless_lines, is_wide, lay, say, table_of

if TYPE_CHECKING:
    from rich.table import Table

    from model_checkpoint.engine.reading.diff import Diff, TensorChange
    from model_checkpoint.engine.reading.export import Exported
    from model_checkpoint.engine.reading.figures.number_figures import NumberFigures
    from model_checkpoint.engine.root.describe import TensorLine


def tensors(lines: Sequence[TensorLine], figures: Mapping[str, NumberFigures | None], *, read: bool) -> None:
    """Every tensor, and where the values were read how they lie."""
    wide = is_wide()
    titles = ("tensor", "dtype and shape", *["size"] * wide, *_titles(wide=wide) * read)
    table = table_of(*titles, right=("size", "min", "max", "mean"))
    for line in lines:
        row = [clean(line.name), clean(f"{line.dtype} {list(line.shape)}"), *[size(line.nbytes)] * wide]
        table.add_row(*row, *(_how_it_lies(figures.get(line.name), wide=wide) if read else ()))
    lay(table)
    bad = [name for name, one in figures.items() if one and (one.nan or one.inf)]
    if bad:
        say(f"[red]not finite:[/] {counted(len(bad), 'tensor')}, first {clean(bad[0])}")


def _titles(*, wide: bool) -> tuple[str, ...]:
    """What is told of values; a narrow terminal goes without the mean."""
    return ("min", "max", "mean", "histogram") if wide else ("min", "max", "histogram")


def _how_it_lies(one: NumberFigures | None, *, wide: bool) -> tuple[str, ...]:
    if one is None:
        return (*[""] * (len(_titles(wide=wide)) - 1), "[dim]no numbers[/]")
    odd = [f"{count} {what}" for count, what in ((one.nan, "NaN"), (one.inf, "Inf")) if count]
    zeros = ["all zero"] if one.count and one.zeros == one.count else []
    remarks = f"[red]{', '.join(odd)}[/]" if odd else ", ".join(zeros)
    mean = [short(one.mean)] * wide
    return short(one.min), short(one.max), *mean, f"{bars(one.histogram)} {remarks}".rstrip()


def leaf(value: Any, *, as_json: bool) -> None:
    """What `mckpt cat` prints."""
    if isinstance(value, str):
        print_json(value) if as_json else say(harmless_lines(value), markup=False)
        return
    if as_json:
        print_json({"dtype": str(value.dtype), "shape": list(value.shape), "values": value.tolist()})
        return
    say(f"{clean(value.dtype)} {list(value.shape)}", markup=False)
    say(harmless_lines(str(value)), markup=False)


def difference(found: Diff, *, as_json: bool) -> None:
    """The table of `mckpt diff`: what has new NaN or infinities first, then what moved most."""
    if as_json:
        print_json(found)
        return
    if found.added or found.removed or found.changed:
        lay(_change_table(found))
    if found.values:
        lay(_value_table(found))
    counts = f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} changed"
    plain = f"; {len(found.values)} plain values differ" if found.values else ""
    say(f"{counts}, {found.unchanged} unchanged{plain}")


def _change_table(found: Diff) -> Table:
    figures = ("moved", "max", "mean") if is_wide() else ("moved", "max")
    table = table_of("tensor", "change", "dtype and shape", *figures, right=figures)
    for name in found.added:
        table.add_row(clean(name), "[green]added[/]")
    for name in found.removed:
        table.add_row(clean(name), "[red]removed[/]")
    for change in found.changed:
        kind = change.before if change.before == change.after else f"{change.before} -> {change.after}"
        told = (_moved(change), number(change.max_change), number(change.mean_change))
        table.add_row(clean(change.name), "changed", clean(kind), *told[: len(figures)])
    return table


def _moved(change: TensorChange) -> str:
    """How far, relative to the norm before; of what is spoiled, how much."""
    if change.spoiled:
        return f"[red]{change.spoiled} not finite[/]"
    if change.relative is None:
        return ""
    return "from zero" if math.isinf(change.relative) else f"{change.relative:.3%}"


def _value_table(found: Diff) -> Table:
    table = table_of("value", "before", "after")
    for change in found.values:
        sides = ("-" if side is None else clean(side) for side in (change.before, change.after))
        table.add_row(clean(change.name), *sides)
    return table


def exported(done: Exported, *, as_json: bool) -> None:
    """What `mckpt export` wrote."""
    if as_json:
        print_json(done)
        return
    say(f"{counted(done.tensors, 'tensor')}, {size(done.nbytes)}: {clean(', '.join(done.files))}")


def converted(done: Any, *, as_json: bool) -> None:
    """What `mckpt convert` or `adopt` made, in its report's own words."""
    if as_json:
        print_json(done)
        return
    say(clean_lines(str(done)))
