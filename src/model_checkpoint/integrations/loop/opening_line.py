"""Opening line: in one line what a run goes on from, and what it fell back over."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from model_checkpoint.integrations.loop.place import RunPlace
from model_checkpoint.plan import LoadReport
from model_checkpoint.storage.locate import Root

log = logging.getLogger("model_checkpoint.run")


def tell(line: str, *, quiet: bool) -> None:
    """Say it in the log, and to whoever looks at stderr, unless a program is to be ``quiet``.

    Example:
        >>> tell("runs/a: a new run", quiet=True)
    """
    log.info("%s", line)
    if not quiet and sys.stderr is not None:
        sys.stderr.write(f"{line}\n")


def opening(
    root: Root, place: RunPlace, report: LoadReport, *, notes: Sequence[str] = (), reasons: Sequence[str] = ()
) -> str:
    """Say where a run is, where that came from, what was passed over, what it costs and why it may not be exact.

    Example:
        >>> opening("runs/a", RunPlace(step=5, batch=5), LoadReport(checkpoint="runs/a/checkpoints/step-00000005"))
        'runs/a: resumed at step 5 (epoch 0, batch 5) from runs/a/checkpoints/step-00000005'
    """
    passed = "".join(f", passing over {one}" for one in report.passed_over)
    costs = "".join(f"; {note}" for note in notes)
    doubts = f"; not bit for bit: {'; '.join(reasons)}" if reasons else ""
    where = f"step {place.step} (epoch {place.epoch}, batch {place.batch})"
    return f"{root}: resumed at {where} from {report.checkpoint}{passed}{costs}{doubts}"
