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
    "save": "engine.writing.save",
    "save_async": "engine.background.save_async",
    "finish_saves": "engine.background.save_async",
    "preemption": "engine.background.preemption",
    "load": "engine.reading.load",
    "load_slice": "engine.reading.slices",
    "list_checkpoints": "engine.root.listing",
    "verify": "engine.reading.verify",
    "describe": "engine.root.describe",
    "diff": "engine.reading.diff",
    "delete": "engine.root.delete",
    "undelete": "engine.root.delete",
    "collect_garbage": "engine.root.recover",
    "register_codec": "tree",
    "rng_state": "tree",
    "CheckpointInfo": "engine.common.info",
    "SaveJob": "engine.jobs.job",
    "SaveState": "engine.jobs.job",
    "CheckpointFormat": "options",
    "CompressionLevel": "options",
    "Progress": "events",
    "CheckpointException": "errors",
    "ExceptionType": "errors",
}

__all__ = ["__version__", *_HOMES]  # the table above is the list

logging.getLogger("model_checkpoint").addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from model_checkpoint.engine.background.preemption import preemption as preemption
    from model_checkpoint.engine.background.save_async import finish_saves as finish_saves
    from model_checkpoint.engine.background.save_async import save_async as save_async
    from model_checkpoint.engine.common.info import CheckpointInfo as CheckpointInfo
    from model_checkpoint.engine.jobs.job import SaveJob as SaveJob
    from model_checkpoint.engine.jobs.job import SaveState as SaveState
    from model_checkpoint.engine.reading.diff import diff as diff
    from model_checkpoint.engine.reading.load import load as load
    from model_checkpoint.engine.reading.slices import load_slice as load_slice
    from model_checkpoint.engine.reading.verify import verify as verify
    from model_checkpoint.engine.root.delete import delete as delete
    from model_checkpoint.engine.root.delete import undelete as undelete
    from model_checkpoint.engine.root.describe import describe as describe
    from model_checkpoint.engine.root.listing import list_checkpoints as list_checkpoints
    from model_checkpoint.engine.root.recover import collect_garbage as collect_garbage
    from model_checkpoint.engine.writing.save import save as save
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
