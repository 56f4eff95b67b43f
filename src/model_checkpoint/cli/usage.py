"""Usage: how the arguments of a verb are written in its help: REF, [ROOT], TAG..., and not by the types behind them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def usage_of(params: Iterable[Any]) -> list[str]:
    """The arguments among ``params`` as the line of usage names them; one in brackets may be left out.

    Example:
        >>> usage_of([])
        []
    """
    return [one.metavar if one.required else f"[{one.metavar}]" for one in _arguments(params)]


def hide_types(params: Iterable[Any]) -> None:
    """Let arguments stand in the help without a type: they are texts; older versions of Typer say none.

    Example:
        >>> hide_types([])
    """
    for one in _arguments(params):
        one.display_type_rich = lambda ctx: None


def _arguments(params: Iterable[Any]) -> list[Any]:
    return [one for one in params if one.param_type_name == "argument"]
