"""Torch trial: whether torch can be loaded, found out by another process while the rest is looked at.

Loading takes longer than all other checks, and one that crashes or never ends is a finding, not the end of the command.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from signal import Signals
from typing import Self

from model_checkpoint.cli.checkup.diagnosis import Diagnosis, bad, good

PATIENCE = 120.0  # seconds; from a slow network disk it may take one of these minutes
_CURE = "pip install --force-reinstall torch"
_LOAD = """
import sys
sys.path[:] = sys.argv[1:]
try:
    import torch
    cuda = f"CUDA {torch.version.cuda}, {torch.cuda.device_count()} devices" if torch.cuda.is_available() else "no CUDA"
    told = "found", f"{torch.__version__}, {cuda}"
except Exception as error:
    told = "error", str(error) or type(error).__name__
print("", *told, sep=chr(0), end="")
"""


class TorchTrial:
    """Torch, being loaded; a context manager, which ends what is not done when it is left.

    Example:
        >>> with TorchTrial() as trial:
        ...     trial.result().topic
        'torch'
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._process: subprocess.Popen[str] | None = None
        if is_there("torch"):
            call = [sys.executable, "-P", "-c", _LOAD, *sys.path]
            self._process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()  # where it has ended, nothing happens
            self._process.communicate()

    def result(self) -> Diagnosis:
        """What came of it, as soon as that is known."""
        if self._process is None:
            return good("torch", "not installed; NumPy, JAX and plain states work without it")
        try:
            said, _ = self._process.communicate(timeout=self._patience)
        except subprocess.TimeoutExpired:
            return bad("torch", f"is installed, but was not loaded within {self._patience:g} s", _CURE)
        kind, text = _told(said, self._process.returncode)
        if kind == "error":
            return bad("torch", f"is installed, but cannot be imported: {text}", _CURE)
        return good("torch", text)


def _told(said: str, code: int) -> tuple[str, str]:
    """What was printed last, which is ours; a process that was killed has told nothing."""
    if code == 0:
        _, kind, text = said.rsplit("\0", 2)
        return kind, text
    return "error", f"it ended the process with {Signals(-code).name if code < 0 else f'exit code {code}'}"


def is_there(name: str) -> bool:
    """Whether a module is installed; it is not imported.

    Example:
        >>> is_there("json"), is_there("no_such_module")
        (True, False)
    """
    try:
        return find_spec(name) is not None
    except ImportError:
        return False
