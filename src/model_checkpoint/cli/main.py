"""Main: `mckpt` as a program of its own, and what becomes of its failures."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys

from model_checkpoint.cli.exit_codes import ExitCode, code_of
from model_checkpoint.errors import CheckpointException, CheckpointNotFound, WrongReference


class _Remarks(logging.Handler):
    """What the library remarks on, as a line on the error stream."""

    def emit(self, record: logging.LogRecord) -> None:
        from model_checkpoint.cli.rendering.terminal import remark

        remark(record.getMessage())


def run() -> None:
    """Run the command as a program of its own."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # when the reader of a pipe has seen enough, end as other tools do
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that lacks a character shows a ?
    logging.getLogger("model_checkpoint").addHandler(_Remarks(logging.WARNING))
    gc.set_threshold(300_000, 20, 20)  # imports make objects that stay: looking through them costs a tenth of a start
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no verb multiplies matrices; NumPy starts its threads for that
    try:
        answer()
    finally:
        gc.freeze()  # the process ends: what is left goes with it, and need not be looked through for cycles


def answer() -> None:
    """Run the command; our own errors become one message and an exit code, without a traceback."""
    from model_checkpoint.cli.app import app
    from model_checkpoint.cli.rendering.terminal import complain

    try:
        if os.environ.get("_MCKPT_COMPLETE") == "complete_bash":
            from model_checkpoint.cli.bash_words import complete_in_bash

            complete_in_bash(lambda: app(prog_name="mckpt"))
        app(prog_name="mckpt")
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except (CheckpointException, ValueError, OSError, MemoryError) as error:
        code = code_of(error)
        complain(f"{error}{_elsewhere(error)}")
        sys.exit(code)


def _elsewhere(error: Exception) -> str:
    """Where that may be which was not found: whoever names a folder of runs most likely means one of them."""
    if not isinstance(error, (CheckpointNotFound, WrongReference)) or not error.checkpoint_path:
        return ""
    from model_checkpoint.cli.finding.runs import runs_in

    hint = runs_in(error.checkpoint_path)
    return f" {hint}" if hint else ""
