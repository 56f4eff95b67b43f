"""Run change: what is said about a run, so that it means the same whoever else says something in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from model_checkpoint.database.records import Experiment
from model_checkpoint.database.values.json_values import to_json
from model_checkpoint.errors import OptionInvalid

Status = Literal["running", "completed", "failed", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """Fields to replace; settings, tags and a note to add; tags to remove. Made twice it changes nothing more.

    Example:
        >>> run = Experiment(id="r1", name="a", tags=["good"], config={"lr": 0.1})
        >>> after = RunChange(config={"seed": 1}, add_tags=["new", "good"]).made(run)
        >>> after.config, after.tags
        ({'lr': 0.1, 'seed': 1}, ('good', 'new'))
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    add_tags: Sequence[str] = ()
    remove_tags: Sequence[str] = ()
    add_note: str = ""

    def made(self, run: Experiment) -> Experiment:
        """The run as it is afterwards."""
        tags = [tag for tag in dict.fromkeys([*run.tags, *self.add_tags]) if tag not in self.remove_tags]
        changed = replace(run, **self.fields, config={**run.config, **self.config}, tags=tuple(tags))
        if changed.notes.endswith(self.add_note):
            return changed
        return replace(changed, notes=f"{changed.notes}\n{self.add_note}".strip())


def check_status(status: str) -> None:
    """Refuse a status there is none of.

    Example:
        >>> check_status("failed")
    """
    if status not in get_args(Status):
        raise OptionInvalid(
            f"status must be one of {', '.join(get_args(Status))}, got {status!r}. Nothing was changed."
        )


def read_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run; what is no plain data is refused by name here, whether the database is there or not.

    Example:
        >>> read_settings({"lr": 0.1})
        {'lr': 0.1}
    """
    to_json(settings, "config")
    return dict(settings)


def read_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Words to find a run by; a single string is none of them, since it would be taken letter by letter.

    Example:
        >>> read_tags(["good", "fast"])
        ('good', 'fast')
    """
    words = tuple(tags)
    if isinstance(tags, str) or not all(isinstance(tag, str) and tag for tag in words):
        raise OptionInvalid(f"tags must be a list of words, got {tags!r}. Nothing was done.")
    return words


def ending(error: BaseException | None) -> tuple[Status, str]:
    """What an exception says about how a run ended, and the note about it.

    Example:
        >>> ending(ValueError("bad batch")), ending(None)
        (('failed', 'failed: ValueError: bad batch'), ('completed', ''))
    """
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return "completed", ""
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        return "stopped", f"stopped: {type(error).__qualname__}"
    return "failed", f"failed: {type(error).__qualname__}: {error}"
