"""Metric values: what users hand in becomes names and floats, at the call, so that nothing changes afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model_checkpoint.tracking.errors import MetricRefused

LONGEST_NAME = 250  # characters, what the catalog can index on every database

_FLOATS = frozenset({float})


class MetricReader:
    """Reads metrics of one run; a name is judged once, so that the usual call costs next to nothing.

    Numbers of Python, NumPy, torch, JAX and whatever converts itself are taken; NaN and infinities are kept. All are
    kept as 64-bit floats, as every reader of metrics expects.

    Example:
        >>> import numpy as np
        >>> MetricReader().read({"loss": np.float32(0.5), "tokens": 4096, "ok": True})
        {'loss': 0.5, 'tokens': 4096.0, 'ok': 1.0}
    """

    def __init__(self) -> None:
        self._names: set[str] = set()

    def read(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """A copy of ``metrics`` with plain floats.

        Raises:
            MetricRefused: A name or value cannot be kept; the message names it.
        """
        if type(metrics) is dict and metrics.keys() <= self._names and set(map(type, metrics.values())) <= _FLOATS:
            return metrics.copy()
        return self._read_each(metrics)

    def _read_each(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        if not isinstance(metrics, Mapping):
            raise MetricRefused(
                f"metrics: expected a mapping of names to numbers, got {type(metrics).__qualname__}. "
                'Nothing was logged; write {"loss": loss}.'
            )
        values = {name: float_of(name, value) for name, value in metrics.items()}
        for name in values.keys() - self._names:
            check_name(name)
            self._names.add(name)
        return values


def check_name(name: Any) -> None:
    """Refuse a name that one of the databases could not keep or index.

    Example:
        >>> check_name("train/loss")
        >>> check_name("")
        Traceback (most recent call last):
        model_checkpoint.tracking.errors.MetricRefused: metric '': the name is empty. Nothing was logged; ...
    """
    wrong = _wrong_with(name)
    if wrong:
        raise MetricRefused(f"metric {name!r:.80}: the name {wrong}. Nothing was logged; give it another name.")


def _wrong_with(name: Any) -> str:
    if not isinstance(name, str):
        return f"is no string but {type(name).__qualname__}"
    if not name:
        return "is empty"
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters, at most {LONGEST_NAME} are kept"
    if "\0" in name or not name.isprintable():
        return "has characters that cannot be shown"
    return ""


def float_of(name: Any, value: Any) -> float:
    """One value as a float; arrays of one element count as numbers, text and ``None`` do not.

    Example:
        >>> float_of("loss", 3)
        3.0
        >>> float_of("loss", "3")
        Traceback (most recent call last):
        model_checkpoint.tracking.errors.MetricRefused: metric 'loss': is no number but str ('3'). Nothing was ...
    """
    if type(value) is float:
        return value
    number = value
    try:
        if not isinstance(value, (int, float)) and callable(getattr(value, "item", None)):
            number = value.item()  # arrays of every framework, without importing any
        if hasattr(number, "__float__") or hasattr(number, "__index__"):
            return float(number)
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise MetricRefused(
            f"metric {name!r}: {type(value).__qualname__} is not one number ({error}). "
            "Nothing was logged; reduce it first, e.g. by .mean()."
        ) from error
    raise MetricRefused(
        f"metric {name!r}: is no number but {type(value).__qualname__} ({value!r:.40}). "
        "Nothing was logged; text belongs into log_hyperparameters() or notes."
    )
