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
    "save": "engine.save",
    "load": "engine.load",
    "load_slice": "engine.slices",
    "list_checkpoints": "engine.listing",
    "verify": "engine.verify",
    "describe": "engine.describe",
    "diff": "engine.diff",
    "delete": "engine.delete",
    "undelete": "engine.delete",
    "collect_garbage": "engine.recover",
    "register_codec": "tree",
    "rng_state": "tree",
    "CheckpointInfo": "engine.info",
    "CheckpointFormat": "options",
    "CompressionLevel": "options",
    "Progress": "events",
    "CheckpointException": "errors",
    "ExceptionType": "errors",
}

__all__ = ["__version__", *_HOMES]  # the table above is the list

logging.getLogger("model_checkpoint").addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from model_checkpoint.engine.delete import delete as delete
    from model_checkpoint.engine.delete import undelete as undelete
    from model_checkpoint.engine.describe import describe as describe
    from model_checkpoint.engine.diff import diff as diff
    from model_checkpoint.engine.info import CheckpointInfo as CheckpointInfo
    from model_checkpoint.engine.listing import list_checkpoints as list_checkpoints
    from model_checkpoint.engine.load import load as load
    from model_checkpoint.engine.recover import collect_garbage as collect_garbage
    from model_checkpoint.engine.save import save as save
    from model_checkpoint.engine.slices import load_slice as load_slice
    from model_checkpoint.engine.verify import verify as verify
    from model_checkpoint.errors import CheckpointException as CheckpointException
    from model_checkpoint.errors import ExceptionType as ExceptionType
    from model_checkpoint.events import Progress as Progress
    from model_checkpoint.options import CheckpointFormat as CheckpointFormat
    from model_checkpoint.options import CompressionLevel as CompressionLevel
    from model_checkpoint.tree import register_codec as register_codec
    from model_checkpoint.tree import rng_state as rng_state


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
