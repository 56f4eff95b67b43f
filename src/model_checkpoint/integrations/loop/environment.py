"""Environment: what must be the same for numbers to be the same, and what is not."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

_MEANING = {
    "torch": "the version of torch",
    "jax": "the version of jax",
    "numpy": "the version of NumPy",
    "python": "the version of Python",
    "threads": "the number of threads torch computes with",
    "instructions": "the instruction set torch computes with",
    "machine": "the kind of processor",
    "world_size": "the number of processes",
}


def environment() -> dict[str, Any]:
    """What decides about the bits of a computation, as plain data.

    Example:
        >>> environment()["numpy"] == np.__version__
        True
    """
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = str(torch.__version__)
        found["threads"] = torch.get_num_threads()
        found["instructions"] = torch.backends.cpu.get_cpu_capability()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            found["world_size"] = torch.distributed.get_world_size()
    jax = sys.modules.get("jax")
    if jax is not None and hasattr(jax, "__version__"):
        found["jax"] = jax.__version__
    return found


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not as it was, one sentence each.

    Example:
        >>> differences({"threads": 1}, {"threads": 2})
        ['the number of threads torch computes with was 1, is 2']
    """
    return [
        f"{_MEANING.get(key, key)} was {saved.get(key)}, is {now.get(key)}"
        for key in dict.fromkeys([*saved, *now])
        if saved.get(key) != now.get(key)
    ]
