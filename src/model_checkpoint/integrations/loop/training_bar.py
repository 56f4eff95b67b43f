"""Training bar: how far a run is, on a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from model_checkpoint.integrations.loop.opening_line import tell

_EVERY = 0.1  # seconds between two looks of the bar


class TrainingBar:
    """Step, metrics, time until the next save and the time saves have cost; only lines where there is no terminal."""

    def __init__(self, *, total: int | None, shown: bool | None) -> None:
        self._bar: Any = None
        self._quiet = shown is False
        self._next = 0.0
        self._looked: tuple[float, int] | None = None  # when the bar was last looked at, and the step it was then
        if shown is False:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        if shown or console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", total=total)
            self._bar.start()

    def say(self, text: str) -> None:
        """A line above the bar, or where there is none."""
        tell(text, quiet=self._quiet or self._bar is not None)
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)

    def is_due(self) -> bool:
        """Whether there is a bar and it is time to look at it: ten times a second."""
        return self._bar is not None and time.monotonic() >= self._next

    def update(self, step: int, metrics: Mapping[str, Any], *, to_save: int | None, stall: float) -> None:
        """Show the run as it is."""
        now = time.monotonic()
        self._next = now + _EVERY
        shown = [f"{name} {float(value):.4g}" for name, value in list(metrics.items())[:3]]
        saving = [] if to_save is None else [f"save in {self._time_of(to_save, now, step)}"]
        text = "  ".join([*shown, *saving, f"stall {stall * 1e3:.0f} ms"])
        self._bar.update(self._task, completed=step, description=text.replace("[", r"\["))

    def _time_of(self, steps: int, now: float, step: int) -> str:
        """How long so many steps take, as fast as the last ones went."""
        (then, before), self._looked = self._looked or (now, step), (now, step)
        return f"{steps} steps" if step <= before else f"{steps * (now - then) / (step - before):.0f} s"

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()
