"""Progress line: a line on the terminal that says what long work is at, and goes when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from model_checkpoint.cli.rendering.terminal import clean


@contextmanager
def progress_line(title: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show a spinner and the time since; the callable it yields says what the work is at.

    Example:
        >>> with progress_line("measuring", quiet=True) as tell:
        ...     tell("saving")
    """
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(clean(title), total=None)
        yield lambda text: shown.update(task, description=clean(text))
