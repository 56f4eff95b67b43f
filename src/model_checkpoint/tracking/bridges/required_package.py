"""Required package: a library a bridge leads to, imported before the training begins."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from model_checkpoint.errors import OptionInvalid


def required_package(name: str) -> Any:
    """Import it, here and now: a process that forks while a thread imports may end up in a child that waits for ever.

    Example:
        >>> required_package("json").dumps([1])
        '[1]'
        >>> required_package("no_such_tracker")
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: bridges: no_such_tracker cannot be imported (No module named ...
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise OptionInvalid(
            f"bridges: {name} cannot be imported ({error}). Install it (pip install {name.partition('.')[0]}), or "
            "leave it out. Nothing was done."
        ) from error
