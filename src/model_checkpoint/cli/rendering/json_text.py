"""JSON text: any of our results as one JSON value, which strict readers take."""

from __future__ import annotations

import math
from dataclasses import asdict, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any


def as_json_text(value: object) -> str:
    """Any of our results as one JSON value.

    Example:
        >>> as_json_text({"loss": float("nan"), "steps": (1, 2)})
        '{"loss": "nan", "steps": [1, 2]}'
    """
    import json  # who prints tables does without

    def plain(item: Any) -> Any:
        if is_dataclass(item) and not isinstance(item, type):
            return asdict(item)
        if hasattr(item, "__struct_fields__"):
            return {name: getattr(item, name) for name in item.__struct_fields__}
        if isinstance(item, datetime):
            return item.isoformat()
        if isinstance(item, Enum):
            return item.value
        return str(item)

    return json.dumps(_finite(json.loads(json.dumps(value, default=plain))), allow_nan=False)


def _finite(value: Any) -> Any:
    """Say what JSON has no number for as text: "nan", "inf", "-inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def print_json(value: object) -> None:
    """Print one JSON value."""
    print(as_json_text(value))
