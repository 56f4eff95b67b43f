"""Extras: parts of the package that need more than what is always installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from model_checkpoint.cli.errors import ExtraMissing


def brought(module: str, extra: str) -> Any:
    """Import a module of ours; what it needs and is not installed is told with the line that installs it.

    Example:
        >>> brought("model_checkpoint.options", "server").MIB
        1048576
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            f"{error.name} is not installed, and this verb needs it. pip install 'model-checkpoint[{extra}]'"
        ) from error
