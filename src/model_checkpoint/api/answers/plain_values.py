"""Plain values: numbers and settings as JSON can say them. JSON has no NaN and no infinity; those are words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

Number = float | Literal["NaN", "Infinity", "-Infinity"] | None
HIDDEN = "***"
_MOST_DEPTH, _MOST_TEXT = 20, 10_000
_WORDS = ("password", "passwd", "passphrase", "secret", "credential", "credentials")
_KEYS = ("api_key", "apikey", "access_key", "secret_key", "private_key", "auth_key")
_LEAST_TOKEN = 16  # characters


def number_of(value: float | None) -> Number:
    """A number, or the word for what is none.

    Example:
        >>> number_of(0.5), number_of(float("nan")), number_of(float("-inf")), number_of(None)
        (0.5, 'NaN', '-Infinity', None)
    """
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def is_secret(name: Any, value: Any) -> bool:
    """Whether a setting looks like a password, a key or a token; a token of a language model does not.

    Example:
        >>> is_secret("db_password", "hush"), is_secret("my_token", "0123456789abcdef"), is_secret("pad_token", "<p>")
        (True, True, False)
    """
    if not isinstance(value, str) or not value:
        return False
    word = str(name).lower().replace("-", "_").rpartition(".")[2]
    if word.endswith((*_WORDS, *_KEYS)):
        return True
    return word.endswith("token") and len(value) >= _LEAST_TOKEN and not set(value) & set("<>[] ")


def plain_of(value: Any, depth: int = 0) -> Any:
    """Anything as JSON can say it; what it has no word for is told as text, and of secrets only that they are there.

    Example:
        >>> plain_of({"lr": 0.1, "betas": (0.9, float("inf")), 3: None})
        {'lr': 0.1, 'betas': [0.9, 'Infinity'], '3': None}
        >>> plain_of({"db": {"password": "hush"}})
        {'db': {'password': '***'}}
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return number_of(value)
    if isinstance(value, str) or depth >= _MOST_DEPTH:
        return str(value)[:_MOST_TEXT]
    if isinstance(value, Mapping):
        return {str(key): plain_of(HIDDEN if is_secret(key, one) else one, depth + 1) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_of(one, depth + 1) for one in value]
    return str(value)[:_MOST_TEXT]
