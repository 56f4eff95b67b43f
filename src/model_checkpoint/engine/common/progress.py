"""Progress: turn a caller's ``progress=`` into the callable that receives the events of one operation."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from model_checkpoint.events import Emit, Progress, ignore

Listen = bool | Emit | None

_SAID_TO_BE_TERMINALS = ("FORCE_COLOR", "TTY_COMPATIBLE")  # rich goes by them, too


@contextmanager
def listening(progress: Listen, title: str) -> Iterator[Emit]:
    """Yield the listener of one operation: the caller's own, a bar on the error stream for True, else nobody.

    Example:
        >>> seen = []
        >>> with listening(seen.append, "saving") as emit:
        ...     emit(Progress(operation="save", done=1, total=2, seconds=0.5))
        >>> seen[0].rate
        2.0
    """
    if progress is True and _may_be_watched():
        with _bar(title) as emit:
            yield emit
    else:
        yield ignore if progress is True else progress or ignore


def _may_be_watched() -> bool:
    """Whether the error stream is a terminal, or somebody says that it is; importing what draws costs 20 ms."""
    with suppress(AttributeError, ValueError):  # there is none, or it is closed
        if sys.stderr.isatty():
            return True
    return not os.environ.keys().isdisjoint(_SAID_TO_BE_TERMINALS)


@contextmanager
def _bar(title: str) -> Iterator[Emit]:
    """A bar that vanishes when the operation is over."""
    from rich import progress as rich  # only who asks for a bar pays for it
    from rich.console import Console
    from rich.table import Column

    console = Console(stderr=True)
    title_column, figures_column = (  # cut on a narrow terminal, without a mark that would be read as part of a name
        rich.TextColumn(text, table_column=Column(no_wrap=True, overflow="crop"))
        for text in ("{task.description}", "{task.fields[figures]}")
    )
    columns = (title_column, rich.BarColumn(), figures_column)
    with rich.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None, figures="")

        def emit(event: Progress) -> None:
            bar.update(task, total=event.total, completed=event.done, figures=figures_of(event))

        yield emit


def figures_of(event: Progress) -> str:
    """How far an operation has come, in words.

    Example:
        >>> figures_of(Progress(operation="save", done=5_000_000, total=20_000_000, seconds=0.5))
        '5.0 MB of 20.0 MB, 10.0 MB/s'
        >>> figures_of(Progress(operation="prune", done=3, total=7, seconds=0.5, unit="checkpoints"))
        '3 of 7 checkpoints'
    """
    if event.unit != "bytes":
        return f"{event.done} of {event.total} {event.unit}"
    from rich.filesize import decimal

    return f"{decimal(event.done)} of {decimal(event.total)}, {decimal(int(event.rate))}/s"
