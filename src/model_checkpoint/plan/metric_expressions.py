"""Metric expressions: what "best" means, in one line of text: a metric, or arithmetic on several, and a direction.

``val_loss``, ``min:x``, ``max:x``, ``val_f1 - 0.1*latency``, ``min:(a + b)/2``, ``val_f1, latency`` (the second where
the first are equal). Names ending in loss, error or perplexity get better downwards, others upwards. Nothing is ever
run as code: the text is taken apart here, and only the operators and functions named here exist.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from model_checkpoint.errors import ExpressionInvalid
from model_checkpoint.name_lists import did_you_mean

MINIMISED = ("loss", "error", "perplexity")

_MOST_CHARACTERS, _MOST_DEPTH = 2000, 50
_DIRECTION = re.compile(r"\s*(min|max)\s*:")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d][\w.]*)|`(?P<quoted>[^`]+)`"
    r"|(?P<symbol>[-+*/(),]))"
)
_SIGNS: Mapping[str, Callable[..., float]] = {"+": operator.pos, "-": operator.neg}
_SUMS: Mapping[str, Callable[..., float]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Mapping[str, Callable[..., float]] = {"*": operator.mul, "/": operator.truediv}
_FUNCTIONS: Mapping[str, tuple[Callable[..., float], int]] = {  # and how many values each takes at least
    "abs": (abs, 1),
    "exp": (math.exp, 1),
    "log": (math.log, 1),
    "max": (max, 2),
    "min": (min, 2),
    "sqrt": (math.sqrt, 1),
}
_SEVERAL = ("max", "min")


class Constant(msgspec.Struct, frozen=True):
    """A number written down."""

    number: float

    def value(self, metrics: Mapping[str, Any]) -> float | None:
        """That number."""
        return self.number


class MetricName(msgspec.Struct, frozen=True):
    """A metric of the checkpoint."""

    name: str

    def value(self, metrics: Mapping[str, Any]) -> float | None:
        """What was measured; None if nothing was, or no number."""
        found = metrics.get(self.name)
        return found if isinstance(found, (int, float)) else None


class Operation(msgspec.Struct, frozen=True):
    """One operator or function, and what it is applied to."""

    function: Callable[..., float]
    operands: tuple[Operand, ...]

    def value(self, metrics: Mapping[str, Any]) -> float | None:
        """The result; None if an operand has none, NaN where arithmetic has none."""
        values = [operand.value(metrics) for operand in self.operands]
        if None in values:
            return None
        if any(isinstance(value, float) and math.isnan(value) for value in values):
            return math.nan  # min and max would drop it, depending on where it stands
        try:
            return self.function(*values)
        except (ZeroDivisionError, OverflowError, ValueError):
            return math.nan


Operand = Constant | MetricName | Operation


@dataclass(frozen=True, slots=True)
class MetricExpression:
    """A value made of metrics, and the direction in which it gets better."""

    text: str  # without the direction
    minimise: bool
    names: tuple[str, ...]  # the metrics it needs
    formula: Operand

    @classmethod
    def parse(cls, text: str, *, known: Collection[str] = ()) -> MetricExpression:
        """Read one expression; a text that is, letter for letter, a ``known`` metric is that metric.

        ``best_loss`` reads as ``loss``, unless a metric has that very name. Other names than letters, digits, ``_`` and
        ``.`` are written in backticks.

        Example:
            >>> MetricExpression.parse("min:val_loss").minimise, MetricExpression.parse("val_f1 - 0.1*latency").names
            (True, ('val_f1', 'latency'))
            >>> MetricExpression.parse("val/loss", known=["val/loss"]).names
            ('val/loss',)
        """
        found = parse_criteria(text, known=known)
        if len(found) > 1:
            raise ExpressionInvalid(f"{text!r}: one expression is meant here, got {len(found)} with a comma between.")
        return found[0]

    def value(self, metrics: Mapping[str, Any]) -> float | None:
        """What the expression comes to; None if a metric of it is missing, NaN where arithmetic has no answer.

        Example:
            >>> expression = MetricExpression.parse("val_f1 - 0.1*latency")
            >>> expression.value({"val_f1": 0.9, "latency": 2}), expression.value({"val_f1": 0.9})
            (0.7, None)
        """
        return self.formula.value(metrics)

    def __str__(self) -> str:
        return f"{'min' if self.minimise else 'max'}:{self.text}"


def parse_criteria(text: str, *, known: Collection[str] = ()) -> tuple[MetricExpression, ...]:
    """Read expressions with commas between: each decides where those before it are equal.

    Example:
        >>> [str(one) for one in parse_criteria("val_loss, max:val_f1 / latency")]
        ['min:val_loss', 'max:val_f1 / latency']
        >>> parse_criteria("val_f1 - * 2")
        Traceback (most recent call last):
        model_checkpoint.errors.ExpressionInvalid: 'val_f1 - * 2': expected a metric, a number or '(' at character ...
    """
    direction = None if text in known else _DIRECTION.match(text)
    rest = text[direction.end() :].strip() if direction else text
    if rest in known:
        return (_plain(rest, direction[1] == "min" if direction else None),)
    if len(text) > _MOST_CHARACTERS:
        raise ExpressionInvalid(f"an expression has at most {_MOST_CHARACTERS} characters, got {len(text)}.")
    return tuple(_Parser(text, known).criteria())


def _plain(name: str, minimise: bool | None) -> MetricExpression:
    """One metric as it is."""
    down = name.casefold().endswith(MINIMISED) if minimise is None else minimise
    return MetricExpression(name, down, (name,), MetricName(name))


class _Token(msgspec.Struct, frozen=True):
    kind: str  # "number", "name", "symbol" or "end"
    text: str
    at: int  # the first character of it


class _Parser:
    """Takes one text apart, token by token."""

    def __init__(self, text: str, known: Collection[str]) -> None:
        self._text, self._known, self._at, self._depth = text, known, 0, 0
        self._next = self._read()

    def criteria(self) -> Iterator[MetricExpression]:
        """All expressions of the text."""
        while True:
            yield self._criterion()
            if not self._takes(","):
                break
        if self._next.kind != "end":
            raise self._complaint("expected an operator")

    def _criterion(self) -> MetricExpression:
        minimise = self._direction()
        start = self._next.at
        formula = self._sum()
        text = self._text[start : self._next.at].strip()
        if isinstance(formula, MetricName):
            return _plain(self._meant(formula.name), minimise)
        names = tuple(dict.fromkeys(_names(formula)))
        if not names:
            raise self._complaint(f"{text!r} has no metric in it, so it ranks nothing; expected a metric", at=start)
        down = next((name for name in names if name.casefold().endswith(MINIMISED)), None)
        if minimise is None and down is not None:
            hint = f'say "min:{text}" or "max:{text}"'
            raise self._complaint(f"{down!r} gets better downwards, other parts may not; {hint}", at=start)
        return MetricExpression(text, bool(minimise), names, formula)

    def _direction(self) -> bool | None:
        """Whether it says to minimise; None if it does not say."""
        match = _DIRECTION.match(self._text, self._next.at)
        if match is None:
            return None
        self._at = match.end()
        self._next = self._read()
        return match[1] == "min"

    def _meant(self, name: str) -> str:
        """The metric that a name alone stands for."""
        return name.removeprefix("best_") if name not in self._known else name

    # from the loosest to the tightest ---------------------------------------------------------------------------------

    def _sum(self) -> Operand:
        return self._chain(_SUMS, self._product)

    def _product(self) -> Operand:
        return self._chain(_PRODUCTS, self._signed)

    def _chain(self, symbols: Mapping[str, Callable[..., float]], inner: Callable[[], Operand]) -> Operand:
        left = inner()
        while self._next.kind == "symbol" and self._next.text in symbols:
            left = Operation(symbols[self._advance().text], (left, inner()))
        return left

    def _signed(self) -> Operand:
        if self._next.kind != "symbol" or self._next.text not in _SIGNS:
            return self._operand()
        with_sign = _SIGNS[self._advance().text]
        return self._deeper(lambda: Operation(with_sign, (self._signed(),)))

    def _operand(self) -> Operand:
        if self._next.kind == "number":
            return Constant(float(self._advance().text))
        if self._next.kind == "name":
            name = self._advance()
            return self._function(name) if self._takes("(") else MetricName(name.text)
        if self._next.kind == "quoted":
            return MetricName(self._advance().text)
        if self._takes("("):
            inner = self._deeper(self._sum)
            self._require(")")
            return inner
        raise self._complaint("expected a metric, a number or '('")

    def _function(self, name: _Token) -> Operand:
        if name.text not in _FUNCTIONS:
            hint = f"{did_you_mean(name.text, _FUNCTIONS, '')} Got one".lstrip()
            raise self._complaint(
                f"there is no function {name.text!r}, only {', '.join(_FUNCTIONS)}. {hint}", at=name.at
            )
        function, least = _FUNCTIONS[name.text]
        operands = [self._deeper(self._sum)]
        while self._takes(","):
            operands.append(self._deeper(self._sum))
        if len(operands) < least or (len(operands) > 1 and name.text not in _SEVERAL):
            wanted = "two or more values" if name.text in _SEVERAL else "one value"
            raise self._complaint(f"{name.text} takes {wanted}, got {len(operands)}", at=name.at)
        self._require(")")
        return Operation(function, tuple(operands))

    def _deeper(self, inner: Callable[[], Operand]) -> Operand:
        if self._depth >= _MOST_DEPTH:
            raise self._complaint(f"at most {_MOST_DEPTH} parentheses or signs may lie inside each other; got one more")
        self._depth += 1
        found = inner()
        self._depth -= 1
        return found

    # tokens ----------------------------------------------------------------------------------------------------------

    def _read(self) -> _Token:
        match = _TOKEN.match(self._text, self._at)
        if match is not None and match.lastgroup is not None:
            self._at = match.end()
            kind = match.lastgroup
            return _Token(kind, match[kind], match.start(kind) - (kind == "quoted"))
        rest = self._text[self._at :]
        at = self._at + len(rest) - len(rest.lstrip())
        return _Token("end" if not rest.strip() else "stranger", self._text[at : at + 1], at)

    def _advance(self) -> _Token:
        token, self._next = self._next, self._read()
        return token

    def _takes(self, symbol: str) -> bool:
        if self._next.kind != "symbol" or self._next.text != symbol:
            return False
        self._advance()
        return True

    def _require(self, symbol: str) -> None:
        if not self._takes(symbol):
            raise self._complaint(f"expected {symbol!r} or an operator")

    def _complaint(self, what: str, *, at: int | None = None) -> ExpressionInvalid:
        token, position = self._next, self._next.at if at is None else at
        got = "the end" if token.kind == "end" else repr(token.text)
        place = f" at character {position + 1}" + (f", got {got}" if at is None else "")
        backticks = "Names with other characters are written in `backticks`."
        hint = did_you_mean(self._text.strip(), self._known, backticks)
        raise ExpressionInvalid(
            f"{self._text!r}: {what}{place}. {hint}\n  {self._text}\n  {' ' * position}^", at=position
        )


def _names(formula: Operand) -> Iterator[str]:
    if isinstance(formula, MetricName):
        yield formula.name
    elif isinstance(formula, Operation):
        for operand in formula.operands:
            yield from _names(operand)
