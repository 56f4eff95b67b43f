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
        found = import_module(name)
    except ImportError as error:
        raise _refusal(name, str(error)) from error
    if getattr(found, "__file__", None) is None:  # trackers leave folders that are called like them
        raise _refusal(name, f"here it is but a folder, {next(iter(found.__path__))}")
    return found


def _refusal(name: str, why: str) -> OptionInvalid:
    return OptionInvalid(
        f"bridges: {name} cannot be imported ({why}). Install it (pip install {name.partition('.')[0]}), or leave it "
        "out. Nothing was done."
    )
