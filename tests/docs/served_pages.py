"""A server as a page says to start it, asked for its runs."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from urllib.request import Request, urlopen

MCKPT = [sys.executable, "-c", "from model_checkpoint.cli.main import run; run()"]


@contextmanager
def serving(command, folder):
    """Run a ``mckpt serve`` line in a folder; give the rows of its list of runs and what it printed, then end it."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "BROWSER": "true"}  # a browser that shows nothing
    words = command.split()[1:]
    with subprocess.Popen([*MCKPT, *words], cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as server:
        try:
            told = server.stdout.readline()
            address, token = re.search(r"(http://\S+/)#token=(\S+)", told).groups()
            asked = Request(f"{address}api/runs", headers={"Authorization": f"Bearer {token}"})
            with urlopen(asked, timeout=60) as answer:
                yield json.load(answer)["rows"], told
        finally:
            server.send_signal(signal.SIGINT)
