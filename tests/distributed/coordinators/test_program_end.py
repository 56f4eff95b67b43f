"""A program ends well, whatever its coordinator is just asking of others."""

import subprocess
import sys

PROGRAM = """
import threading, time
from datetime import timedelta

import torch.distributed as dist
from model_checkpoint.distributed.coordinators.bounded import BoundedCalls

class Slow:
    def __del__(self):
        time.sleep(1)  # the interpreter is being taken down, and other threads run into that

store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
calls, begun, slow = BoundedCalls("example"), threading.Event(), Slow()

def ask():
    begun.set()
    try:
        store.wait(["what nobody says"], timedelta(seconds=0.3))
    except dist.DistStoreError:
        print("no answer", flush=True)

threading.Thread(target=lambda: calls.run(ask, seconds=9), daemon=True).start()
begun.wait()
"""


def test_a_call_under_way_comes_back_before_the_interpreter_goes():
    """One that came back later would abort the process, and a launcher then ends those of the other ranks."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)

    assert (ended.returncode, ended.stdout) == (0, "no answer\n"), ended.stderr
