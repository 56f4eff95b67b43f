"""Column types: the same comparison, the same limits and the same refusal on every database.

MySQL compares text without regard to case and trailing blanks unless told otherwise, and SQLite cuts nothing at the
length a column declares; here a name is its bytes, and what is too long is refused before it is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import msgspec
from sqlalchemy import JSON, BigInteger, Dialect, Double, Integer, String, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from model_checkpoint.database.values.column_rules import RULES, DataRule, FiniteRule, Rule, TextRule, WholeRule
from model_checkpoint.database.values.exact_numbers import LARGEST
from model_checkpoint.database.values.json_values import from_json, to_json

_MYSQL = ("mysql", "mariadb")
_MOST_BYTES = 4  # of one character in UTF-8

# of every table: text equals only itself, and a crash loses no row
OPTIONS: dict[str, Any] = {
    f"{name}_{key}": value
    for name in ("mysql", "mariadb")
    for key, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}

T = TypeVar("T")
_Bind = Callable[[Any], Any]

BigInt = BigInteger().with_variant(Integer(), "sqlite")  # only INTEGER counts up by itself there


class _Checked(TypeDecorator[T]):
    """A column that refuses what it cannot keep, by the rule of its class; the message says ``what`` it is of."""

    _rule: ClassVar[Callable[..., Rule]]

    def __init__(self, what: str, *sizes: int) -> None:
        super().__init__(*sizes)
        self.what = what
        self.rule = self._rule(what, *sizes)

    def bind_processor(self, dialect: Dialect) -> _Bind | None:
        """Let what is sound pass at once: a save has thirty values, and nearly all of them are."""
        careful = super().bind_processor(dialect)
        return careful and self._at_once(careful)

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Check the value."""
        return None if value is None else self.rule.kept(value)

    def _at_once(self, careful: _Bind) -> _Bind:
        """What is sound as it is; all else as ``careful`` has it."""
        raise NotImplementedError


class ExactText(_Checked[str]):
    """Text of at most ``length`` characters that equals only itself."""

    impl = String
    cache_ok = True
    _rule = TextRule

    def __init__(self, what: str, length: int) -> None:
        super().__init__(what, length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Bytes where text would be compared loosely."""
        if dialect.name in _MYSQL:
            from sqlalchemy.dialects.mysql import VARBINARY

            return dialect.type_descriptor(VARBINARY(self.length * _MOST_BYTES))
        return dialect.type_descriptor(String(self.length))

    def bind_processor(self, dialect: Dialect) -> _Bind | None:
        """Where it is kept as bytes, also sound text must be encoded."""
        encoded = dialect.name in _MYSQL
        return TypeDecorator.bind_processor(self, dialect) if encoded else super().bind_processor(dialect)

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Check the text, and encode it where it is kept as bytes."""
        text = super().process_bind_param(value, dialect)
        return text.encode() if text is not None and dialect.name in _MYSQL else text

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """The text again."""
        return bytes(value).decode() if isinstance(value, (bytes, bytearray, memoryview)) else value

    def _at_once(self, careful: _Bind) -> _Bind:
        length = self.length
        return lambda value: value if _is_sound(value) and len(value) <= length else careful(value)


class LongText(_Checked[str]):
    """Text of any length that is never searched for."""

    impl = Text
    cache_ok = True
    _rule = TextRule

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """MySQL's own TEXT ends at 64 KiB."""
        if dialect.name in _MYSQL:
            from sqlalchemy.dialects.mysql import LONGTEXT

            return dialect.type_descriptor(LONGTEXT())
        return dialect.type_descriptor(Text())

    def _at_once(self, careful: _Bind) -> _Bind:
        return lambda value: value if _is_sound(value) else careful(value)


class PlainData(_Checked[Any]):
    """Plain data as a JSON column."""

    impl = JSON
    cache_ok = True
    _rule = DataRule

    def bind_processor(self, dialect: Dialect) -> _Bind | None:
        """As text where that is how it is kept; other drivers have types of their own for it."""
        if dialect.name != "sqlite":
            return TypeDecorator.bind_processor(self, dialect)
        what = self.what
        return lambda value: msgspec.json.encode(to_json(value, what)).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """As it was."""
        return from_json(value)


class WholeNumber(_Checked[int]):
    """An integer of 64 bits."""

    impl = BigInteger
    cache_ok = True
    _rule = WholeRule

    def _at_once(self, careful: _Bind) -> _Bind:
        return lambda value: value if value.__class__ is int and -LARGEST <= value < LARGEST else careful(value)


class FiniteNumber(_Checked[float]):
    """A float that is neither NaN nor infinite, such as a time."""

    impl = Double
    cache_ok = True
    _rule = FiniteRule

    def _at_once(self, careful: _Bind) -> _Bind:
        return lambda value: value if value.__class__ is float and math.isfinite(value) else careful(value)


def _is_sound(value: Any) -> bool:
    """Whether it is text that needs no second look."""
    return value.__class__ is str and value.isascii() and "\0" not in value


def typed(table: str, column: str) -> TypeEngine[Any]:
    """The type of a column that has a rule.

    Example:
        >>> typed("experiments", "name").length
        250
    """
    rule = RULES[table][column]
    if isinstance(rule, TextRule):
        return LongText(rule.what) if rule.most is None else ExactText(rule.what, rule.most)
    return _TYPES[type(rule)](rule.what)


_TYPES: dict[type[Rule], Callable[[str], TypeEngine[Any]]] = {
    DataRule: PlainData,
    WholeRule: WholeNumber,
    FiniteRule: FiniteNumber,
}
