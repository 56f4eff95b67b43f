"""Manager options: what can be chosen once for all checkpoints of a manager, checked before anything is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model_checkpoint.checkpoint.catalog.best_choice import require_criterion
from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.retention.keeper_words import as_keepers
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.options import CompressionLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """The choices of one manager.

    Example:
        >>> ManagerOptions(max_checkpoints=3).max_checkpoints
        3
        >>> ManagerOptions(max_checkpoints=0)
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: max_checkpoints must be None or a whole number of 1 or more, got 0.
    """

    compression: CompressionLevel = CompressionLevel.NONE
    incremental: bool = False
    parity: str | None = None  # "xor" or "pq": files by which damaged ones can be rebuilt
    mirror: str | None = None  # a second root that is written behind each save
    integrity: bool = True  # look at what was committed before it is recorded
    caching: bool = True
    hooks: bool = True
    save_best: bool = True  # the best ones are never dropped to make room
    save_last: bool = True  # the newest so many are kept; else only the very newest, beside the best
    save_frequency: int = 5  # epochs between scheduled checkpoints
    max_checkpoints: int | None = 10
    best_metric: str | None = None  # what "best_metric" means: a metric, an expression, or several
    keep: Keeper | str | Sequence[Keeper | str] | None = (
        None  # keepers, instead of those that follow from the choices above
    )
    grace: float = 3600.0  # seconds for which what was dropped can be brought back, and takes room

    def __post_init__(self) -> None:
        if self.best_metric is not None:
            require_criterion(self.best_metric)
        if self.keep is not None:
            object.__setattr__(self, "keep", as_keepers(self.keep))
        for name in ("max_checkpoints", "save_frequency"):
            value = getattr(self, name)
            none = value is None and name == "max_checkpoints"
            if not none and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                words = "None or a whole number" if name == "max_checkpoints" else "a whole number"
                raise OptionInvalid(f"{name} must be {words} of 1 or more, got {value!r}.")
        if isinstance(self.grace, bool) or not isinstance(self.grace, int | float) or not self.grace >= 0:
            raise OptionInvalid(f"grace must be seconds, 0 or more, got {self.grace!r}.")
        for name in ("incremental", "integrity", "caching", "hooks", "save_best", "save_last"):
            if not isinstance(getattr(self, name), bool):
                raise OptionInvalid(f"{name} must be True or False, got {getattr(self, name)!r}.")
