"""Column types: the same comparison, the same limits and the same refusal on every database.

MySQL compares text without regard to case and trailing blanks unless told otherwise, and SQLite cuts nothing at the
length a column declares; here a name is its bytes, and what is too long is refused before it is sent.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import JSON, BigInteger, Dialect, Double, Integer, String, Text
from sqlalchemy.dialects.mysql import LONGTEXT, VARBINARY
from sqlalchemy.types import TypeDecorator, TypeEngine

from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.values.exact_numbers import as_float
from model_checkpoint.database.values.json_values import as_text, from_json, to_json

_MYSQL = ("mysql", "mariadb")
_MOST_BYTES = 4  # of one character in UTF-8
_LARGEST = 1 << 63

# of every table: text equals only itself, and a crash loses no row
OPTIONS: dict[str, Any] = {
    f"{name}_{key}": value
    for name in ("mysql", "mariadb")
    for key, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}

_Bind = Callable[[Any], Any]

BigInt = BigInteger().with_variant(Integer(), "sqlite")  # only INTEGER counts up by itself there


class ExactText(TypeDecorator[str]):
    """Text of at most ``length`` characters that equals only itself."""

    impl = String
    cache_ok = True

    def __init__(self, what: str, length: int) -> None:
        super().__init__(length)
        self.what, self.length = what, length  # the first for messages

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Bytes where text would be compared loosely."""
        if dialect.name in _MYSQL:
            return dialect.type_descriptor(VARBINARY(self.length * _MOST_BYTES))
        return dialect.type_descriptor(String(self.length))

    def bind_processor(self, dialect: Dialect) -> _Bind | None:
        """Let sound text pass at once: a save has thirty values, and nearly all of them are."""
        careful, length = super().bind_processor(dialect), self.length
        if dialect.name in _MYSQL or careful is None:
            return careful
        return lambda value: value if _is_sound(value) and len(value) <= length else careful(value)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """Check the text, and encode it where it is kept as bytes."""
        if value is None:
            return None
        text = as_text(value, self.what)
        if len(text) > self.length:
            raise RowRefused(f"{self.what}: at most {self.length} characters, got {len(text)}: {text[:40]!r}...")
        return text.encode() if dialect.name in _MYSQL else text

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """The text again."""
        return bytes(value).decode() if isinstance(value, (bytes, bytearray, memoryview)) else value


class LongText(TypeDecorator[str]):
    """Text of any length that is never searched for."""

    impl = Text
    cache_ok = True

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """MySQL's own TEXT ends at 64 KiB."""
        return dialect.type_descriptor(LONGTEXT() if dialect.name in _MYSQL else Text())

    def bind_processor(self, dialect: Dialect) -> _Bind | None:
        """Let sound text pass at once."""
        careful = super().bind_processor(dialect)
        return careful and (lambda value: value if _is_sound(value) else careful(value))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Check the text."""
        return None if value is None else as_text(value, self.what)


class PlainData(TypeDecorator[Any]):
    """Plain data as a JSON column."""

    impl = JSON
    cache_ok = True

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def bind_processor(self, dialect: Dialect) -> _Bind | None:
        """As text where that is how it is kept; other drivers have types of their own for it."""
        if dialect.name != "sqlite":
            return super().bind_processor(dialect)
        what = self.what
        return lambda value: msgspec.json.encode(to_json(value, what)).decode()

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """As JSON can say it."""
        return to_json(value, self.what)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """As it was."""
        return from_json(value)


class WholeNumber(TypeDecorator[int]):
    """An integer of 64 bits."""

    impl = BigInteger
    cache_ok = True

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def bind_processor(self, dialect: Dialect) -> _Bind | None:
        """Let a sound number pass at once."""
        careful = super().bind_processor(dialect)
        return careful and (
            lambda value: value if value.__class__ is int and -_LARGEST <= value < _LARGEST else careful(value)
        )

    def process_bind_param(self, value: Any, dialect: Dialect) -> int | None:
        """Check the number."""
        return None if value is None else as_whole(value, self.what)


class FiniteNumber(TypeDecorator[float]):
    """A float that is neither NaN nor infinite, such as a time."""

    impl = Double
    cache_ok = True

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def bind_processor(self, dialect: Dialect) -> _Bind | None:
        """Let a sound number pass at once."""
        careful = super().bind_processor(dialect)
        return careful and (
            lambda value: value if value.__class__ is float and math.isfinite(value) else careful(value)
        )

    def process_bind_param(self, value: Any, dialect: Dialect) -> float | None:
        """Check the number."""
        number = None if value is None else as_float(value, self.what)
        if number is not None and not math.isfinite(number):
            raise RowRefused(f"{self.what}: must be a finite number, got {number}.")
        return number


def _is_sound(value: Any) -> bool:
    """Whether it is text that needs no second look."""
    return value.__class__ is str and value.isascii() and "\0" not in value


def as_whole(value: Any, where: str) -> int:
    """An integer that fits 64 bits; a float is none, however round.

    Example:
        >>> as_whole(7, "step")
        7
    """
    try:
        number = operator.index(value)
    except TypeError as error:
        raise RowRefused(f"{where}: must be a whole number, got {value!r}.") from error
    if not -_LARGEST <= number < _LARGEST:
        raise RowRefused(f"{where}: {number} does not fit 64 bits.")
    return number
