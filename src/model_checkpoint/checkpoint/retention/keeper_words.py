"""Keeper words: a keeper in one word, for command lines and configuration: ``last:3``, ``best:val_loss:2``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from model_checkpoint.checkpoint.retention import keepers
from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.retention.interval_keepers import KeepEvery, KeepLadder
from model_checkpoint.checkpoint.retention.metric_keepers import KeepBest, KeepPareto
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.name_lists import did_you_mean

_TIMES = ("hour", "day", "week", "month")


def parse_keeper(text: str) -> Keeper:
    """Read one keeper.

    Example:
        >>> for word in ("last:3", "best:min:val_loss + x:2", "every:1000", "ladder:2x10,7xday", "budget:50GB:hard"):
        ...     print(parse_keeper(word))
        last 3
        best 2 by min:val_loss + x
        every 1000 steps
        ladder of 2 x 10 steps, 7 x day
        hard budget of 50000000000 bytes
    """
    kind, _, rest = text.partition(":")
    make = _WORDS.get(kind)
    if make is None:
        known = f"{text!r}: there is no keeper {kind!r}, only {', '.join(_WORDS)}. "
        raise OptionInvalid(f"{known}{did_you_mean(kind, _WORDS, '')}".rstrip())
    try:
        return make(rest)
    except (ValueError, TypeError) as error:
        if isinstance(error, OptionInvalid):
            raise
        raise OptionInvalid(f"{text!r}: cannot be read; write {_EXAMPLES[kind]}.") from None


def as_keepers(keep: Keeper | str | Iterable[Keeper | str]) -> tuple[Keeper, ...]:
    """What ``keep=`` means: one keeper or several, each itself or its word; refused if there is none.

    Example:
        >>> [str(one) for one in as_keepers(["last:3", keepers.every(10)])], str(as_keepers("last:1")[0])
        (['last 3', 'every 10 steps'], 'last 1')
        >>> as_keepers([])
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: say what to keep, e.g. keep=[mc.last(3), mc.best('val_loss', 2)]; got ...
    """
    given = [keep] if isinstance(keep, (str, Keeper)) else list(keep) if isinstance(keep, Iterable) else [keep]
    made = tuple(parse_keeper(one) if isinstance(one, str) else one for one in given)
    strangers = [one for one in made if not isinstance(one, Keeper)]
    if not made or strangers:
        got = f"got {strangers[0]!r}" if strangers else "got none"
        raise OptionInvalid(
            f"say what to keep, e.g. keep=[mc.last(3), mc.best('val_loss', 2)]; {got}. Nothing was done."
        )
    if sum(isinstance(one, keepers.KeepWithin) for one in made) > 1:
        raise OptionInvalid("one budget is enough: two would contradict each other. Nothing was done.")
    return made


def word_of(keeper: Keeper) -> str:
    """The word that :func:`parse_keeper` reads as this keeper; empty if there is none.

    Example:
        >>> [word_of(parse_keeper(word)) for word in ("last:3", "best:min:val_loss + x:2", "ladder:2x10,7xday")]
        ['last:3', 'best:min:val_loss + x:2', 'ladder:2x10,7xday']
        >>> word_of(keepers.best("loss", tie="oldest"))
        ''
    """
    word = _word(keeper)
    try:
        same = bool(word) and str(parse_keeper(word)) == str(keeper)
    except OptionInvalid:  # a comma where words have one of their own
        same = False
    return word if same else ""


def _word(keeper: Keeper) -> str:
    match keeper:
        case keepers.KeepLast(count):
            return f"last:{count}"
        case KeepBest(criteria, count, "newest", "never"):
            return f"best:{criteria}:{count}"
        case KeepPareto(first, second):
            return f"pareto:{first},{second}"
        case KeepEvery(steps):
            return f"every:{steps}"
        case KeepLadder(rungs):
            return "ladder:" + ",".join(f"{rung.count}x{rung.label.removesuffix(' steps')}" for rung in rungs)
        case keepers.KeepYounger(seconds):
            return f"younger_than:{seconds:f}s"
        case keepers.KeepTagged(tags):
            return f"tagged:{','.join(sorted(tags))}" if tags else "tagged"
        case keepers.KeepPinned():
            return "pinned"
        case keepers.KeepWithin(nbytes, hard):
            return f"budget:{nbytes}B{':hard' if hard else ''}"
    return ""


def _best(rest: str) -> Keeper:
    criteria, _, count = rest.rpartition(":")
    return keepers.best(criteria, int(count)) if criteria and count.isdecimal() else keepers.best(_some(rest))


def _pareto(rest: str) -> Keeper:
    first, second = rest.split(",")
    return keepers.pareto(_some(first), _some(second))


def _ladder(rest: str) -> Keeper:
    rungs = [(int(count), what) for count, what in (rung.split("x", 1) for rung in rest.split(","))]
    steps = {int(what): count for count, what in rungs if what not in _TIMES}
    return keepers.ladder(steps, **{f"{what}s": count for count, what in rungs if what in _TIMES})


def _tagged(rest: str) -> Keeper:
    return keepers.tagged(*(rest.split(",") if rest else ()))


def _pinned(rest: str) -> Keeper:
    if rest:
        raise ValueError("takes nothing")
    return keepers.pinned()


def _budget(rest: str) -> Keeper:
    size, mark, how = rest.partition(":")
    if mark and how != "hard":
        raise ValueError("hard or nothing")
    return keepers.budget(size, hard=bool(mark))


def _some(text: str) -> str:
    if not text.strip():
        raise ValueError("empty")
    return text.strip()


_WORDS: Mapping[str, Callable[[str], Keeper]] = {
    "last": lambda rest: keepers.last(int(rest)),
    "best": _best,
    "pareto": _pareto,
    "every": lambda rest: keepers.every(int(rest)),
    "ladder": _ladder,
    "younger_than": lambda rest: keepers.younger_than(rest),
    "tagged": _tagged,
    "pinned": _pinned,
    "budget": _budget,
}
_EXAMPLES = {
    "last": "last:3",
    "best": "best:val_loss or best:val_f1 - 0.1*latency:2",
    "pareto": "pareto:val_f1,min:latency",
    "every": "every:1000",
    "ladder": "ladder:2x10,1x100 or ladder:24xhour,7xday,4xweek,12xmonth",
    "younger_than": "younger_than:7d",
    "tagged": "tagged or tagged:paper,release",
    "pinned": "pinned",
    "budget": "budget:50GB or budget:50GB:hard",
}
