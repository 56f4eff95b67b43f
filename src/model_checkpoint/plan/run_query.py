"""Run query: one line of text that chooses runs or checkpoints, the same for people, programs and pages.

``val_loss < 0.3 tag:baseline -status:failed "free text"``: terms are joined by *and*, a leading ``-`` turns one round.
``name < number`` compares a metric, its best (``best.val_loss``) or a setting; ``field:word`` looks at words; all else
is looked for in names, ids and notes. Nothing is run as code, and no text takes longer than its length.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from model_checkpoint.plan.errors import QueryInvalid

FIELDS = ("status", "tag", "experiment", "name", "id", "host", "user", "health")
TEXT = "text"  # where a row has all that free words are looked for in
MOST_CHARACTERS, MOST_TERMS = 2000, 50

_TERM = re.compile(
    r"""(?P<minus>-)?(?:
        (?P<name>[^\W\d][\w./-]*|`[^`]*`)\s*(?P<op><=|>=|!=|<|>|=)\s*(?P<value>"[^"]*"|[^\s"<>=!]*)
      | (?P<field>[^\W\d]\w*):(?P<word>"[^"]*"|[^\s"]*)
      | "(?P<quoted>[^"]*)"
      | (?P<bare>[^\s"]+)
    )(?=\s|$)""",
    re.VERBOSE,
)
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A metric, or a setting, against a value."""

    name: str
    sign: str
    value: str

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether it is so; of what a row does not have nothing is so."""
        found = row.get(self.name)
        if found is None:
            return False
        number = as_number(self.value)
        if isinstance(found, (int, float)) and not isinstance(found, bool) and number is not None:
            return _OPERATORS[self.sign](found, number)
        if self.sign not in ("=", "!="):
            return False
        return _OPERATORS[self.sign](str(found).lower(), self.value.lower())


@dataclass(frozen=True, slots=True)
class FieldWord:
    """A word at the beginning of a field, or of one of its words."""

    field: str
    word: str

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether any of them begins so."""
        found = row.get(self.field)
        words: Sequence[Any] = found if isinstance(found, (list, tuple)) else () if found is None else (found,)
        return any(str(one).lower().startswith(self.word.lower()) for one in words)


@dataclass(frozen=True, slots=True)
class FreeText:
    """Words that stand anywhere."""

    words: str

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether they do."""
        return self.words.lower() in str(row.get(TEXT, "")).lower()


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One condition, or its opposite."""

    condition: Comparison | FieldWord | FreeText
    negated: bool = False

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a row satisfies it."""
        return self.condition.holds(row) is not self.negated


@dataclass(frozen=True, slots=True)
class RunQuery:
    """All conditions a row must satisfy.

    A row maps names to values: ``status``, ``tag`` (a list) and the other fields, ``text`` for free words, and every
    metric and setting by its name.

    Example:
        >>> query = parse_query('val_loss < 0.3 tag:base -status:failed "digits"', {"val_loss"})
        >>> query.matches({"val_loss": 0.2, "tag": ["baseline"], "status": "alive", "text": "digits r1"})
        True
        >>> sorted(query.names)
        ['val_loss']
    """

    text: str
    terms: tuple[QueryTerm, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The metrics and settings it compares: what a row must have."""
        return frozenset(one.condition.name for one in self.terms if isinstance(one.condition, Comparison))

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether a row satisfies all of it."""
        return all(term.holds(row) for term in self.terms)


def parse_query(text: str, names: Collection[str] = ()) -> RunQuery:
    """Read a search; ``names`` are the metrics and settings there are.

    Example:
        >>> parse_query("vla_loss < 0.3", {"val_loss", "lr"})
        Traceback (most recent call last):
        model_checkpoint.plan.errors.QueryInvalid: no metric or setting is called 'vla_loss'. Did you mean 'val_loss'?

    Raises:
        QueryInvalid: Where it goes wrong, and what may have been meant.
    """
    if len(text) > MOST_CHARACTERS:
        raise QueryInvalid(
            f"a search has at most {MOST_CHARACTERS} characters, got {len(text)}.",
            at=MOST_CHARACTERS,
            length=len(text) - MOST_CHARACTERS,
        )
    terms, at = list[QueryTerm](), _skip(text, 0)
    while at < len(text):
        if len(terms) == MOST_TERMS:
            raise QueryInvalid(f"a search has at most {MOST_TERMS} terms.", at=at, length=len(text) - at)
        match = _TERM.match(text, at)
        if match is None:
            raise _unreadable(text, at)
        terms.append(_term(match, names))
        at = _skip(text, match.end())
    return RunQuery(text, tuple(terms))


def as_number(text: str) -> float | None:
    """The number a text is, or None.

    Example:
        >>> as_number("3e-4"), as_number("adamw")
        (0.0003, None)
    """
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def flattened(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names, as a search calls them.

    Example:
        >>> flattened({"optimizer": {"lr": 0.1}, "seed": 1})
        {'optimizer.lr': 0.1, 'seed': 1}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= flattened(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _term(match: re.Match[str], names: Collection[str]) -> QueryTerm:
    negated = match["minus"] is not None
    if match["name"] is not None:
        return QueryTerm(_comparison(match, names), negated)
    if match["field"] is not None:
        return QueryTerm(_field_word(match), negated)
    return QueryTerm(FreeText(match["quoted"] if match["quoted"] is not None else match["bare"]), negated)


def _comparison(match: re.Match[str], names: Collection[str]) -> Comparison:
    name, value = match["name"].strip("`"), match["value"].strip('"')
    at, length = match.start("name"), len(match["name"])
    if name not in names:
        near = get_close_matches(name, [*names, *FIELDS], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else f" There are {_some(names)}." if names else ""
        raise QueryInvalid(
            f"no metric or setting is called {name!r}.{hint}", at=at, length=length, suggestion=near[0] if near else ""
        )
    if not match["value"]:
        raise QueryInvalid(f"{name} {match['op']} what? Write a value behind it.", at=match.start("op"), length=1)
    if match["op"] not in ("=", "!=") and as_number(value) is None:
        raise QueryInvalid(
            f"{name} {match['op']} needs a number, got {value!r}.", at=match.start("value"), length=len(match["value"])
        )
    return Comparison(name, match["op"], value)


def _field_word(match: re.Match[str]) -> FieldWord:
    field, word = match["field"].lower(), match["word"].strip('"')
    at, length = match.start("field"), len(field)
    if field not in FIELDS:
        near = get_close_matches(field, FIELDS, n=1)
        hint = f"Did you mean {near[0]}:?" if near else f"There are {', '.join(FIELDS)}."
        raise QueryInvalid(
            f"there is no field {field}: to look at. {hint} Free text with a colon goes in quotes.",
            at=at,
            length=length,
            suggestion=f"{near[0]}:" if near else "",
        )
    if not word:
        raise QueryInvalid(f"{field}: what? Write a word behind it.", at=at, length=length + 1)
    return FieldWord(field, word)


def _some(names: Collection[str]) -> str:
    shown = sorted(names)[:6]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")


def _unreadable(text: str, at: int) -> QueryInvalid:
    rest = text[at:]
    if rest.count('"') % 2:
        start = text.rindex('"')
        return QueryInvalid(
            'a quote is opened and never closed. Add a " at the end.',
            at=start,
            length=len(text) - start,
            suggestion=f'{text}"',
        )
    word = rest.split(maxsplit=1)[0]
    return QueryInvalid(
        f'{word!r} cannot be read here. Write name < number, field:word, or "free text".', at=at, length=len(word)
    )
