"""A terminal of its own to run the command on."""

import os
import pty
import subprocess
import sys
from contextlib import suppress

MCKPT = [sys.executable, "-m", "model_checkpoint"]


def on_terminal(columns, *words):
    """Run the command on a terminal of its own; return its exit code and what a person saw."""
    mine, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    process = subprocess.Popen([*MCKPT, *words], stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # how a terminal says that nobody writes to it any more
        while part := os.read(mine, 1 << 16):
            seen += part
    os.close(mine)
    return process.wait(), seen.decode()
