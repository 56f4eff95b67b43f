"""Call options: what a save and a load of many ranks can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, Literal

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.options import CheckpointFormat, CompressionLevel

Duration = float | timedelta

STRATEGIES = ("parallel", "simple")

_SAVED = ("include_optimizer", "include_rng_state")
_LOADED = ("load_optimizer", "load_rng_state", "skip_validation", "strict_mode")


def as_seconds(duration: Duration, name: str) -> float:
    """A duration in seconds; raise if it is none, or no time at all.

    Example:
        >>> as_seconds(timedelta(minutes=10), "timeout"), as_seconds(2.5, "timeout")
        (600.0, 2.5)
    """
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise OptionInvalid(f"{name}={duration!r}: expected seconds above 0 or a timedelta. Nothing was done.")
    return float(seconds)


def _check_flags(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, bool):
            raise OptionInvalid(f"{name}={value!r}: expected True or False. Nothing was done.")


def _said(options: object, *names: str) -> dict[str, Any]:
    """Options as plain data; what is none of those they can be is as it prints, and refused where it is used."""
    values = {name: getattr(options, name) for name in names}
    told = {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}
    return {name: value if isinstance(value, (str, bool, type(None))) else repr(value) for name, value in told.items()}


def _check_prefix(prefix: object) -> None:
    if prefix is not None and (not isinstance(prefix, str) or not prefix.strip()):
        raise OptionInvalid(f"checkpoint_prefix={prefix!r}: expected the name of a checkpoint. Nothing was done.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOptions:
    """How to save.

    Attributes:
        checkpoint_prefix: Name of the checkpoint: the folder ``<root>/checkpoints/<prefix>``. Default:
            ``checkpoint_<UTC yyyymmdd_HHMMSS>`` by the clock of rank 0, made unique.
        format: One file for all, files of each rank, or files of whole tensors that other tools open.
        compression_level: How hard to compress, without loss.
        include_optimizer: Whether the optimizer is saved with the model.
        include_rng_state: Whether the random generators of each rank are saved.
        timeout: Seconds, or a timedelta, for the whole call; default: that of the :class:`DistributedCheckpoint`.
        custom_metadata: Anything JSON can say, kept with the checkpoint.
        overwrite: Replace a checkpoint of that name; ``"damaged"`` only if verification proves damage.

    Example:
        >>> SaveOptions(checkpoint_prefix="model_epoch_100", timeout=60).format
        <CheckpointFormat.MULTI_SHARD: 'multi_shard'>
    """

    checkpoint_prefix: str | None = None
    format: CheckpointFormat = CheckpointFormat.MULTI_SHARD
    compression_level: CompressionLevel = CompressionLevel.NONE
    include_optimizer: bool = True
    include_rng_state: bool = True
    timeout: Duration | None = None
    custom_metadata: Mapping[str, Any] = field(default_factory=dict)
    overwrite: bool | Literal["damaged"] = False

    @property
    def common(self) -> dict[str, Any]:
        """What every rank must ask for alike; metadata are those of rank 0, and each may wait as long as it likes."""
        return _said(self, "checkpoint_prefix", "format", "compression_level", *_SAVED, "overwrite")

    def __post_init__(self) -> None:
        _check_prefix(self.checkpoint_prefix)
        _check_flags(self, *_SAVED)
        if self.timeout is not None:
            as_seconds(self.timeout, "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What to load, and how.

    Attributes:
        checkpoint_prefix: Which checkpoint; there is no default.
        load_optimizer: Whether the optimizer is loaded too.
        load_rng_state: Whether each rank's random generators are set to what that rank saved.
        resharding_strategy: How ranks read arrays if others saved them than load: ``"parallel"``, each only the ranges
            it needs, or ``"simple"``, each stored piece as a whole, every rank beginning with another one.
        timeout: Seconds, or a timedelta, for the whole call; default: that of the :class:`DistributedCheckpoint`.
        skip_validation: Leave the validator out; what is read is verified all the same.
        strict_mode: Whether keys that only one side has, and what a compatibility checker finds, are errors; if not,
            they are warnings.
        per_rank: Whose values to take where the ranks that saved had values of their own and now there are more or
            fewer: a rank of the save, or a function from a rank of now to one of the save.

    Example:
        >>> LoadOptions(checkpoint_prefix="model_epoch_100", resharding_strategy="parallel").strict_mode
        True
    """

    checkpoint_prefix: str | None = None
    load_optimizer: bool = True
    load_rng_state: bool = True
    resharding_strategy: str = "parallel"
    timeout: Duration | None = None
    skip_validation: bool = False
    strict_mode: bool = True
    per_rank: int | Callable[[int], int] | None = None

    @property
    def common(self) -> dict[str, Any]:
        """What every rank must ask for alike; whose values it takes, and how long it waits, is for each to say."""
        return _said(self, "checkpoint_prefix", "resharding_strategy", *_LOADED)

    def __post_init__(self) -> None:
        _check_prefix(self.checkpoint_prefix)
        _check_flags(self, *_LOADED)
        if self.resharding_strategy not in STRATEGIES:
            raise OptionInvalid(
                f"resharding_strategy={self.resharding_strategy!r}: expected {' or '.join(map(repr, STRATEGIES))}. "
                "Nothing was done."
            )
        if self.timeout is not None:
            as_seconds(self.timeout, "timeout")
