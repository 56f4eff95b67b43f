"""Extras: parts of the package that need more than what is always installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from model_checkpoint.cli.errors import ExtraMissing

_PACKAGES = {"orbax": "orbax-checkpoint", "jax": "'model-checkpoint[jax]'"}


def brought(module: str, extra: str) -> Any:
    """Import a module of ours; what it needs and is not installed is told with the line that installs it.

    Example:
        >>> brought("model_checkpoint.options", "server").MIB
        1048576
    """
    with told_what_is_missing(extra):
        return import_module(module)


@contextmanager
def told_what_is_missing(extra: str) -> Iterator[None]:
    """Whatever the block needs and is not installed is told with the line that installs it.

    Example:
        >>> with told_what_is_missing("torch"):
        ...     raise ModuleNotFoundError("No module named 'torch'", name="torch")
        Traceback (most recent call last):
        model_checkpoint.cli.errors.ExtraMissing: torch is not installed, and this needs it. pip install ...
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "a package").partition(".")[0]
        line = _PACKAGES.get(name, f"'model-checkpoint[{extra}]'")
        raise ExtraMissing(f"{name} is not installed, and this needs it. pip install {line}") from error
