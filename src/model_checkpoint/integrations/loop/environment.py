"""Environment: what must be the same for numbers to be the same, and what is not."""

from __future__ import annotations

import os
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
_SWITCHES = {  # what a program may set at any time: not compared with what did not say how it was
    "float": "torch.set_default_dtype",
    "matmul": "torch.set_float32_matmul_precision",
    "deterministic": "torch.use_deterministic_algorithms",
    "mkldnn": "torch.backends.mkldnn.enabled",
    "cudnn": "torch.backends.cudnn (enabled, benchmark, deterministic, allow_tf32)",
    "device": "the kind of device",
    "denormals": "whether denormal numbers are kept (torch.set_flush_denormal)",
    "jax_enable_x64": "jax_enable_x64",
    "jax_default_matmul_precision": "jax_default_matmul_precision",
}
_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "XLA_FLAGS"),
    *("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG"),
)


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
    return found | _switches() | {name: os.environ.get(name, "not set") for name in _VARIABLES}


def _switches() -> dict[str, Any]:
    """What a program chose of how numbers are computed."""
    found: dict[str, Any] = {"denormals": sys.float_info.min / 2 > 0}
    torch = sys.modules.get("torch")
    if torch is not None:
        cudnn = torch.backends.cudnn
        found |= {
            "float": str(torch.get_default_dtype()),
            "matmul": torch.get_float32_matmul_precision(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "mkldnn": torch.backends.mkldnn.enabled,
            "cudnn": str((cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32)),
        }
        if torch.cuda.is_initialized():
            found["device"] = torch.cuda.get_device_name()
    config = getattr(sys.modules.get("jax"), "config", None)
    for name in ("jax_enable_x64", "jax_default_matmul_precision"):
        if hasattr(config, name):
            found[name] = str(getattr(config, name))
    return found


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not as it was, one sentence each.

    Example:
        >>> differences({"threads": 1}, {"threads": 2})
        ['the number of threads torch computes with was 1, is 2']
        >>> differences({"matmul": "high"}, {})  # torch is not there yet
        []
    """
    return [
        f"{_MEANING.get(key) or _SWITCHES.get(key, key)} was {saved.get(key)}, is {now.get(key)}"
        for key in dict.fromkeys([*saved, *now])
        if saved.get(key) != now.get(key) and not (_is_chosen(key) and (key not in saved or key not in now))
    ]


def _is_chosen(key: str) -> bool:
    return key in _SWITCHES or key in _VARIABLES
