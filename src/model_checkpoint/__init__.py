"""model_checkpoint: everything a training run must not lose and must not hold in memory.

The names below are imported on first use, so that importing the package stays cheap.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# public name -> the module that defines it; this table is the whole front door
_HOMES = {
    "CheckpointException": "errors",
    "ExceptionType": "errors",
}

__all__ = ["__version__", *_HOMES]  # the table above is the list

logging.getLogger("model_checkpoint").addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from model_checkpoint.errors import CheckpointException as CheckpointException
    from model_checkpoint.errors import ExceptionType as ExceptionType


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
