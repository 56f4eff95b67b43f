"""Progress: turn a caller's ``progress=`` into the callable that receives the events of one operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from model_checkpoint.events import Emit, Progress, ignore

Listen = bool | Emit | None


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
    if progress is True:
        with _bar(title) as emit:
            yield emit
    else:
        yield progress or ignore


@contextmanager
def _bar(title: str) -> Iterator[Emit]:
    """A bar that vanishes when the operation is over."""
    from rich import progress as rich  # only who asks for a bar pays for it
    from rich.console import Console

    console = Console(stderr=True)
    text, bar_column = rich.TextColumn("{task.description}"), rich.BarColumn()
    columns = (text, bar_column, rich.DownloadColumn(), rich.TransferSpeedColumn())
    with rich.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)

        def emit(event: Progress) -> None:
            bar.update(task, total=event.total, completed=event.done)

        yield emit
